"""A long sure way, and at each of its steps a gamble that ends the episode."""

from __future__ import annotations

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import LOST, WON, Outcomes, table

HORIZON = 20
LENGTH = 6
LUCK = 0.1
"""The chance that the gamble wins."""


def gamble(seed: int, index: int) -> TabularMDP:
    """Six steps forward win for sure. A gamble at any of them wins with chance .1 and loses otherwise; the other two
    actions step back and wait. The numbers of the actions are shuffled in every state.

    While the policy is poor, a gamble is the better choice: it wins more often than the way is walked to its end.
    """
    rng = np.random.default_rng([91, seed, index])
    named = [rng.permutation(4).tolist() for _ in range(LENGTH)]

    def outcomes(place: int) -> dict[int, Outcomes[int]]:
        rows: list[Outcomes[int]] = [
            [(place + 1 if place + 1 < LENGTH else WON, 1.0)],
            [(WON, LUCK), (LOST, 1.0 - LUCK)],
            [(max(place - 1, 0), 1.0)],
            [(place, 1.0)],
        ]
        return dict(zip(named[place], rows, strict=True))

    return table(0, outcomes, HORIZON)
