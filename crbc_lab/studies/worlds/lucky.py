"""Random chains with rare lucky shortcuts and real dead ends."""

from __future__ import annotations

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import WON, Outcomes, table

HORIZON = 20
ACTIONS = 4
TRAPS = 4
"""The states of the dead end. Episodes go on there until the horizon."""

Place = tuple[str, int]


def chain(seed: int, index: int) -> TabularMDP:
    """A chain of 4 to 7 states; success is beyond its end.

    Each state has four actions, in random order. One steps forward with chance .6 to 1 and stays otherwise. One steps
    back. One waits, or steps forward less surely. The last is the shortcut in half of the states: it wins at once with
    chance .03 to .15 and falls into the dead end otherwise. In the other states it falls with chance .1 and steps
    forward otherwise. Nothing leads out of the dead end.
    """
    rng = np.random.default_rng([3, seed, index])
    length = int(rng.integers(4, 8))
    rows = {place: _state(rng, place, length) for place in range(length)}
    after = {place: rng.integers(TRAPS, size=ACTIONS).tolist() for place in range(TRAPS)}

    def outcomes(state: Place) -> dict[int, Outcomes[Place]]:
        kind, place = state
        if kind == "trap":
            return {a: [(("trap", there), 1.0)] for a, there in enumerate(after[place])}
        return rows[place]

    return table(("chain", 0), outcomes, HORIZON)


def _state(rng: np.random.Generator, place: int, length: int) -> dict[int, Outcomes[Place]]:
    here: Place = ("chain", place)
    back: Place = ("chain", max(place - 1, 0))
    ahead: Place | str = ("chain", place + 1) if place + 1 < length else WON
    trap: Place = ("trap", int(rng.integers(TRAPS)))
    sure, unsure = rng.uniform(0.6, 1.0), rng.choice([0.0, 0.5])
    luck = rng.uniform(0.03, 0.15)
    lucky = rng.random() < 0.5
    rows: list[Outcomes[Place]] = [
        [(ahead, sure), (here, 1.0 - sure)],
        [(back, 1.0)],
        [(here, 1.0 - unsure), (ahead, unsure)],
        [(trap, 1.0 - luck), (WON, luck)] if lucky else [(ahead, 0.9), (trap, 0.1)],
    ]
    return {int(a): row for a, row in zip(rng.permutation(ACTIONS), rows, strict=True)}
