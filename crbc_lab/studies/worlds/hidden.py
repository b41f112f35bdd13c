"""Worlds whose anchors hide state: what was done before, what is carried, and where one is."""

from __future__ import annotations

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import LOST, WON, Outcomes, table

HORIZON = 24
ERRANDS, WAYS = 4, 3
CHANCE = (0.05, 0.15, 0.35, 0.65, 0.95)
"""The chance of success after so many errands that were done."""
PLACES = 7
LEFT, RIGHT, USE = range(3)
COLOURS = 5

State = tuple[int, int]


def errands(seed: int, index: int) -> TabularMDP:
    """At each of four stations one of three ways does its errand; the end comes three steps later. The agent sees the
    station, and not how many errands are done, which decides the end."""
    right = np.random.default_rng([94, seed, index]).integers(WAYS, size=ERRANDS)

    def outcomes(state: State) -> dict[int, Outcomes[State]]:
        station, done = state
        if station < ERRANDS:
            return {way: [((station + 1, done + int(way == right[station])), 1.0)] for way in range(WAYS)}
        if station < ERRANDS + 2:
            return {way: [((station + 1, done), 1.0)] for way in range(WAYS)}
        return {way: [(WON, CHANCE[done]), (LOST, 1.0 - CHANCE[done])] for way in range(WAYS)}

    return table((0, 0), outcomes, HORIZON, seen=lambda state: state[0])


def carried(seed: int, index: int) -> TabularMDP:
    """A corridor with a key and a door. The agent sees where it is, and not whether it holds the key."""
    draws = np.random.default_rng([95, seed, index])
    start, key, door = (int(place) for place in draws.permutation(PLACES)[:3])

    def outcomes(state: State) -> dict[int, Outcomes[State]]:
        here, held = state
        if here == door and held:
            used: State | str = WON
        else:
            used = (here, int(held or here == key))
        moved: dict[int, Outcomes[State]] = {
            LEFT: [((max(here - 1, 0), held), 1.0)],
            RIGHT: [((min(here + 1, PLACES - 1), held), 1.0)],
        }
        return moved | {USE: [(used, 1.0)]}

    return table((start, 0), outcomes, HORIZON, seen=lambda state: state[0])


def coloured(seed: int, index: int) -> TabularMDP:
    """A corridor of rooms with a treasure in one of them, entered at either end by chance. The agent sees the colour of
    the room, which others have too, and digs."""
    draws = np.random.default_rng([96, seed, index])
    colour = draws.permutation(np.arange(2 * PLACES) % COLOURS)[: 2 * PLACES - 1].tolist()
    treasure, outside = int(draws.integers(2, 2 * PLACES - 3)), -1

    def outcomes(room: int) -> dict[int, Outcomes[int]]:
        last = len(colour) - 1
        if room == outside:
            return {action: [(0, 0.5), (last, 0.5)] for action in (LEFT, RIGHT, USE)}
        dug: int | str = WON if room == treasure else room
        return {LEFT: [(max(room - 1, 0), 1.0)], RIGHT: [(min(room + 1, last), 1.0)], USE: [(dug, 1.0)]}

    return table(outside, outcomes, HORIZON, seen=lambda room: -1 if room == outside else colour[room])
