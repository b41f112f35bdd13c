"""FrozenLake with anchors: every task is a map of its own."""

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from crbc_envs import AnchorWrapper


def situation(env, cell):
    return "\n".join(map("".join, env.unwrapped.desc.astype(str))) + f"\nYou are in cell {cell}, row by row from 0."


def view(env, cell):
    row, column = divmod(int(cell), 4)
    near = np.pad(env.unwrapped.desc.astype(str), 1, constant_values="#")[row : row + 3, column : column + 3]
    ways = f"left {near[1, 0]}, down {near[2, 1]}, right {near[1, 2]}, up {near[0, 1]}"
    return f"You are at row {row}, column {column}. Around you: {ways}."


def make(render_mode=None, slippery=False, **options):
    def level(seed):
        board = generate_random_map(4, seed=seed)
        return gymnasium.make("FrozenLake-v1", desc=board, is_slippery=slippery, render_mode=render_mode)

    options |= {"actions": ("left", "down", "right", "up"), "show": view, "stochastic": slippery}
    options |= {"text": "Walk on the ice from row 0, column 0 to G at row 3, column 3. A hole, H, ends the walk."}
    return AnchorWrapper(level, situation, success=lambda reward, terminated, info: reward > 0, **options)


gymnasium.register("Lake-v0", entry_point=f"{__name__}:make")
