"""What the engine plays: a game parsed once and shared, and states that are tuples of ints.

Objects, receptacles and places are numbered in the order of their ids, which is the order in which
texts list them: a set of objects is the bits of an int, and reads out sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crbc_envs.alfworld.engine.dialect import Dialect
from crbc_envs.alfworld.engine.pddl import Test


class State(NamedTuple):
    """Where everything is. Sets of objects are bits, by the object's number."""

    place: int
    held: int
    """The object in hand; -1 for none."""
    opened: int
    """Bits of receptacles."""
    inside: tuple[int, ...]
    """What each receptacle holds. An object may be in several."""
    beside: tuple[int, ...]
    """What can be reached from each place, which is what slicing goes by."""
    taken: tuple[int, ...]
    """What was taken from each receptacle and not put back; `look` tells."""
    clean: int
    hot: int
    cool: int
    toggled: int
    sliced: int


class Action(NamedTuple):
    """What a command means: a verb of `dialect.ACTIONS` and what it is done to, -1 for nothing."""

    verb: str
    object: int = -1
    receptacle: int = -1


class Situation(NamedTuple):
    """What the engine remembers of a state it has been asked about."""

    actions: dict[str, Action]
    admissible: tuple[str, ...]
    won: bool
    after: dict[str, tuple[State, str]]


@dataclass(frozen=True, eq=False)
class Game:
    """A parsed game, shared by all who play it.

    Names and types are by number; `objects` bits say which objects have a property, `accepts[r]` which
    may be put into receptacle r; `receptacles_at[p]` are the receptacles of place p. `situations` and
    `travel` are what the engine remembers, so that copies of a group share it.
    """

    name: str
    family: str
    task: str
    """The sentence after "Your task is to: "."""
    dialect: Dialect
    objects: tuple[str, ...]
    object_types: tuple[str, ...]
    receptacles: tuple[str, ...]
    receptacle_types: tuple[str, ...]
    places: tuple[str, ...]
    place_of: tuple[int, ...]
    receptacles_at: tuple[tuple[int, ...], ...]
    openable: int
    """Bits of receptacles."""
    accepts: tuple[int, ...]
    within: tuple[int, ...]
    """What each object holds, for those that can: it never changes."""
    pickupable: int
    cleanable: int
    heatable: int
    coolable: int
    toggleable: int
    sliceable: int
    containers: int
    """Objects that things lie in: bowls, mugs, plates."""
    knives: int
    start: State
    won: Test[State]
    situations: dict[State, Situation] = field(default_factory=dict, repr=False)
    travel: dict[int, dict[str, Action]] = field(default_factory=dict, repr=False)
    """The "go to" actions from each place."""


def bits(mask: int) -> Iterator[int]:
    """The numbers in a set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
