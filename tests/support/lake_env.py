"""FrozenLake with anchors: every task is a map of its own."""

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from crbc_envs import AnchorWrapper

WAYS = ("left", "down", "right", "up")


def situation(env, cell):
    return "\n".join(map("".join, env.unwrapped.desc.astype(str))) + f"\nYou are in cell {cell}, row by row from 0."


def view(env, cell):
    row, column = divmod(int(cell), 4)
    near = np.pad(env.unwrapped.desc.astype(str), 1, constant_values="H")[row : row + 3, column : column + 3]
    around = zip(WAYS, (near[1, 0], near[2, 1], near[1, 2], near[0, 1]), strict=True)
    return f"You are at row {row}, column {column}. Ice lies {', '.join(way for way, what in around if what != 'H')}."


def make(render_mode=None, slippery=False, **options):
    def level(seed):
        board = generate_random_map(4, seed=seed)
        return gymnasium.make("FrozenLake-v1", desc=board, is_slippery=slippery, render_mode=render_mode)

    options |= {"actions": WAYS, "show": view, "stochastic": slippery}
    options |= {"text": "Walk on the ice from row 0, column 0 to G at row 3, column 3. A hole, H, ends the walk."}
    return AnchorWrapper(level, situation, success=lambda reward, terminated, info: reward > 0, **options)


gymnasium.register("Lake-v0", entry_point=f"{__name__}:make")
