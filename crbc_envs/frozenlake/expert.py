"""A FrozenLake expert: the best play by the exact values, or, where it is hasty, a run at the goal."""

from __future__ import annotations

from typing import Any

import numpy as np

from crbc_envs.actions import tagged
from crbc_envs.core import Expert, Infos
from crbc_envs.frozenlake.values import STILL, Table, exact_q, q_by_steps

WAYS = ("left", "down", "right", "up")
SOONER = 0.98
"""Of actions that are equally good, the best under this discount, so that no time is lost."""


def make_expert(P: Table, goal: int, columns: int, limit: int, rng: np.random.Generator, hasty: float = 0.0) -> Expert:
    """An expert for an episode of at most `limit` steps on a map with its goal at cell `goal`.

    With probability `hasty` a reply goes nearer to the goal, whatever the ice is like. Otherwise it is the best one
    with the steps that are left. Raises `ValueError` for a `hasty` outside [0, 1].
    """
    if not 0 <= hasty <= 1:
        raise ValueError(f"hasty must be in [0, 1], got {hasty}")
    sooner, with_left = exact_q(P, SOONER), q_by_steps(P, limit)

    def reply_to(observation: Any, info: Infos) -> str:
        board = "".join(observation.split("\n"))
        cell, steps = board.index("@"), limit - int(info["step"])
        if rng.random() < hasty:
            choices = nearer(cell, goal, columns)
            return tagged(WAYS[choices[rng.integers(len(choices))]], "run")
        Q = with_left[steps, cell]
        best = np.where(Q.max() - Q <= STILL, sooner[cell], -np.inf)
        return tagged(WAYS[int(best.argmax())], "careful")

    return reply_to


def nearer(cell: int, goal: int, columns: int) -> list[int]:
    """The actions towards the goal, as if there were no holes."""
    (row, column), (to_row, to_column) = divmod(cell, columns), divmod(goal, columns)
    helpful = (to_column < column, to_row > row, to_column > column, to_row < row)
    return [action for action, towards in enumerate(helpful) if towards]
