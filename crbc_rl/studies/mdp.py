"""Finite Markov decision processes with a horizon: the worlds in which the true credit is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """n states, A actions, at most B outcomes of an action. State 0 is the start; n is success and n + 1 failure.

    `successor` (n, A, B) and `probability` (n, A, B): the outcomes of each action and their chances; a chance of zero
    fills up. `horizon`: the steps after which an episode is cut. `anchor` (n,): what the agent sees of each state, by
    default the state itself; two states with one anchor are aliased. `admissible` (n, A): which actions exist.
    `distance` (n,): the least number of steps to success, inf where there is none; behaviours use it. `marks` names
    steps of interest as (state, action) masks, such as "bad" and "repair".
    """

    successor: Ints
    probability: Floats
    horizon: int
    anchor: Ints = field(default=None)  # type: ignore[assignment]
    admissible: NDArray[np.bool_] = field(default=None)  # type: ignore[assignment]
    distance: Floats = field(default=None)  # type: ignore[assignment]
    marks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
