"""FrozenLake with anchors: every task is a map of its own."""

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from crbc_envs import AnchorWrapper


def situation(env, cell):
    return "\n".join(map("".join, env.unwrapped.desc.astype(str))) + f"\nYou are in cell {cell}, row by row from 0."


def make(render_mode=None, slippery=False, **options):
    def level(seed):
        board = generate_random_map(4, seed=seed)
        return gymnasium.make("FrozenLake-v1", desc=board, is_slippery=slippery, render_mode=render_mode)

    return AnchorWrapper(
        level,
        situation,
        success=lambda reward, terminated, info: reward > 0,
        actions=("left", "down", "right", "up"),
        show=situation,
        text="Cross the frozen lake from S to G. A hole, H, ends the walk.",
        stochastic=slippery,
        **options,
    )


gymnasium.register("Lake-v0", entry_point=f"{__name__}:make")
