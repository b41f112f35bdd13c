"""What the published tasks ask for: how often each goal occurs, and in which kind of room.

The counts are of ALFWorld's 3,553 training tasks (Shridhar et al., 2021; MIT licence, see NOTICE).
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crbc_envs.alfworld.games.goals import Goal

FILE = Path(__file__).with_name("goal_counts.toml")

STRIDE = 0x9E3779B97F4A7C15
"""The golden section of 2**64. Its multiples, modulo 2**64, cover any interval evenly."""


class Asked(NamedTuple):
    """A goal in a kind of room."""

    room: str
    goal: Goal


class Counts(NamedTuple):
    """The goals of a family, ordered by where things go; and the sums so far of how often each is asked for."""

    asked: tuple[Asked, ...]
    sums: tuple[int, ...]
    copies: tuple[int, ...]
    """The sums of the numbers of tasks with 1, 2, ... things of the target's kind."""

    def at(self, share: float) -> Asked:
        """The goal at `share` of all counts, from 0 to 1."""
        return self.asked[bisect_right(self.sums, share * self.sums[-1])]

    def draw(self, rng: np.random.Generator) -> Asked:
        """Draw a goal as often as it is asked for."""
        return self.at(rng.random())

    def draw_copies(self, rng: np.random.Generator) -> int:
        """Draw the number of things of the target's kind."""
        return 1 + bisect_right(self.copies, rng.random() * self.copies[-1])


@cache
def counts(family: str) -> Counts:
    """The counts of a family. Raises `KeyError` for an unknown one."""
    table = _table()
    rows = sorted(
        (place, room, target, count)
        for room, targets in table["goals"][family].items()
        for target, places in targets.items()
        for place, count in places.items()
    )
    asked = tuple(
        Asked(room, Goal(family, target, lamp=place) if family == "look" else Goal(family, target, place))
        for place, room, target, _ in rows
    )
    return Counts(asked, tuple(accumulate(count for *_, count in rows)), tuple(accumulate(table["copies"][family])))


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def even_share(seed: int, number: int) -> float:
    """A number from 0 to 1 for each of 0, 1, 2, ...: any run of them is spread evenly. `seed` shifts them all."""
    return ((seed + number) * STRIDE % 2**64) / 2**64
