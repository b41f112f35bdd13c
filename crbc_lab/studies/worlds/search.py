"""A household in small: a thing lies in one of eight places, and belongs in another."""

from __future__ import annotations

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import WON, Outcomes, table

HORIZON = 20
PLACES = 8
TAKE, PUT = PLACES, PLACES + 1
"""The two actions after those that go to a place, which have its number."""
HELD = -1

State = tuple[int, int]
"""Where the agent is, and where the thing is."""


def search(seed: int, index: int) -> TabularMDP:
    """Go to any place, take, put: the thing must be found, carried and put down at its place. Put elsewhere, it lies
    there."""
    rng = np.random.default_rng([92, seed, index])
    thing, target, start = (int(place) for place in rng.permutation(PLACES)[:3])

    def outcomes(state: State) -> dict[int, Outcomes[State]]:
        here, lies = state
        rows: dict[int, Outcomes[State]] = {place: [((place, lies), 1.0)] for place in range(PLACES)}
        rows[TAKE] = [((here, HELD) if lies == here else state, 1.0)]
        down: State | str = WON if here == target else (here, here)
        rows[PUT] = [(down if lies == HELD else state, 1.0)]
        return rows

    return table((start, thing), outcomes, HORIZON)
