"""The exact engine's data: a game, parsed once and shared, and states that are tuples of ints.

Objects, receptacles and places are numbered in the order of their ids, which is the order in which texts list
them. A set of objects is an int with one bit per object; iterating over it gives sorted numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crbc_envs.alfworld.engine.dialect import Dialect
from crbc_envs.alfworld.engine.pddl import Test


class State(NamedTuple):
    """The positions and properties of all objects. A set of objects has bit n for object n."""

    place: int
    held: int
    """The object in hand; -1 for none."""
    opened: int
    """Bits of receptacles."""
    inside: tuple[int, ...]
    """The objects in each receptacle. An object may be in several."""
    beside: tuple[int, ...]
    """The objects that can be reached from each place. Slicing uses it."""
    taken: tuple[int, ...]
    """The objects taken from each receptacle and not put back. `look` uses it."""
    clean: int
    hot: int
    cool: int
    toggled: int
    sliced: int


class Action(NamedTuple):
    """A parsed command: a verb of `dialect.ACTIONS`, and the numbers of its object and receptacle, -1 for none."""

    verb: str
    object: int = -1
    receptacle: int = -1


class Situation(NamedTuple):
    """The cached results for one state: its actions, and the successors computed so far."""

    actions: dict[str, Action]
    admissible: tuple[str, ...]
    won: bool
    after: dict[str, tuple[State, str]]


@dataclass(frozen=True, eq=False)
class Game:
    """A parsed game, shared by all episodes of it.

    Names and types are indexed by number. A property such as `pickupable` has a bit per object; `accepts[r]` has
    the objects that may be put into receptacle r; `receptacles_at[p]` has the receptacles of place p.
    `situations`, `travel` and `descriptions` are caches, which the copies of a group share.
    """

    name: str
    family: str
    task: str
    """The sentence after "Your task is to: "."""
    dialect: Dialect
    objects: tuple[str, ...]
    receptacles: tuple[str, ...]
    receptacle_types: tuple[str, ...]
    places: tuple[str, ...]
    place_of: tuple[int, ...]
    receptacles_at: tuple[tuple[int, ...], ...]
    openable: int
    """Bits of receptacles."""
    accepts: tuple[int, ...]
    within: tuple[int, ...]
    """The objects in each object, for bowls and the like. It never changes."""
    pickupable: int
    cleanable: int
    heatable: int
    coolable: int
    toggleable: int
    sliceable: int
    containers: int
    """Objects that hold other objects: bowls, mugs, plates."""
    knives: int
    start: State
    won: Test[State]
    situations: dict[State, Situation] = field(default_factory=dict, repr=False)
    travel: dict[int, dict[str, Action]] = field(default_factory=dict, repr=False)
    """The "go to" actions from each place, by command."""
    descriptions: dict[State, str] = field(default_factory=dict, repr=False)
    source: Any = field(default=None, repr=False)
    """The `GameFile` that it was parsed from, which stands for it in a pickle."""


def bits(mask: int) -> Iterator[int]:
    """The numbers of the set bits, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
