"""A deterministic house: rooms with doors, and a thing that is fetched, washed and put away."""

from __future__ import annotations

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import WON, Outcomes, table

HORIZON = 50
ROOMS = 15
DOORS = 5
"""The most doors of a room. Actions 0 to 4 go through them; a missing door changes nothing."""

HAND, BACK, WAIT = DOORS, DOORS + 1, DOORS + 2

CLOSED, OPEN, HELD, WASHED = range(4)
"""The phases: the cupboard is closed; it is open; the thing is in hand; it is in hand and washed."""

Where = tuple[int, int]


def house(seed: int, index: int) -> TabularMDP:
    """60 states: 15 rooms x 4 phases. Every action is admissible everywhere.

    `HAND` opens the cupboard, takes the thing out of it, washes it at the sink, and puts the washed thing onto the
    table, which is success. `BACK` undoes: it closes the cupboard, puts the thing back, and at the stove it makes the
    washed thing dirty. Elsewhere the two change nothing. `WAIT` never does.
    """
    rng = np.random.default_rng([4, seed, index])
    doors = _doors(rng)
    start, cupboard, sink, table_, stove = rng.permutation(ROOMS)[:5].tolist()
    hand = {(cupboard, CLOSED): OPEN, (cupboard, OPEN): HELD, (sink, HELD): WASHED}
    back = {(cupboard, OPEN): CLOSED, (cupboard, HELD): OPEN, (cupboard, WASHED): OPEN, (stove, WASHED): HELD}

    def outcomes(state: Where) -> dict[int, Outcomes[Where]]:
        room, phase = state
        after: list[Where | str] = [(there, phase) for there in doors[room]]
        after += [(room, hand.get(state, phase)), (room, back.get(state, phase)), state]
        if state == (table_, WASHED):
            after[HAND] = WON
        return {a: [(there, 1.0)] for a, there in enumerate(after)}

    return table((start, CLOSED), outcomes, HORIZON)


def _doors(rng: np.random.Generator) -> list[list[int]]:
    """The room behind each door, 15 x 5: a random tree and up to five doors more. Every door leads both ways."""
    beside: list[set[int]] = [set() for _ in range(ROOMS)]

    def join(one: int, other: int) -> None:
        beside[one].add(other)
        beside[other].add(one)

    for room in range(1, ROOMS):
        join(room, int(rng.choice([other for other in range(room) if len(beside[other]) < DOORS - 1])))
    for _ in range(5):
        one, other = rng.permutation(ROOMS)[:2].tolist()
        if max(len(beside[one]), len(beside[other])) < DOORS:
            join(one, other)
    behind = []
    for room, others in enumerate(beside):
        row = sorted(others) + [room] * (DOORS - len(others))  # a missing door leads nowhere
        behind.append([row[n] for n in rng.permutation(DOORS)])
    return behind
