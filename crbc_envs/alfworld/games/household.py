"""Draws random households: a floor plan with furniture, and things in it.

A `Layout` is a room with its receptacles, each with the place from which it is reached. A `Household` is a layout
with things. Splits separate layouts by `Layout.furniture`, which is all that an agent sees of a room at the start.
Names follow the published games. An object's name is its kind and its position in metres, with signs and points
spelled out. A place is a point on a grid of 25 cm, a viewing direction and a downward angle.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

FILE = Path(__file__).with_name("household.toml")


class Count(NamedTuple):
    """The number of a kind in a room: with probability `chance` from `low` to `high`, `mean` on average; else 0."""

    chance: float
    low: int
    mean: float
    high: int


def _counts(table: dict[str, dict[str, list[Any]]]) -> dict[str, dict[str, Count]]:
    return {room: {kind: Count(*numbers) for kind, numbers in kinds.items()} for room, kinds in table.items()}


def _words(table: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(text.split()) for key, text in table.items()}


def _chance(chance: float, kinds: str) -> tuple[float, tuple[str, ...]]:
    return chance, tuple(kinds.split())


_TABLES = tomllib.loads(FILE.read_text(encoding="utf-8"))

FURNITURE, THINGS = _counts(_TABLES["furniture"]), _counts(_TABLES["things"])
ROOMS = tuple(FURNITURE)
ESSENTIAL, HOLDS, STANDS = (_words(_TABLES[name]) for name in ("essential", "holds", "stands"))
CROWD: dict[str, float] = _TABLES["crowd"]
OPENABLE: dict[str, float] = _TABLES["openable"]
BESIDE = {kind: _chance(*row) for kind, row in _TABLES["beside"].items()}
ALSO_IN = {(thing, kind): _chance(*row) for thing, rows in _TABLES["also_in"].items() for kind, row in rows.items()}
FIXED, NESTS = frozenset(_TABLES["fixed"].split()), frozenset(_TABLES["nests"].split())
PROPERTIES = {name: frozenset(kinds) for name, kinds in _words(_TABLES["properties"]).items()}

Size = Literal["full", "small"]
SIZES: tuple[Size, ...] = ("full", "small")
"""Full: as large as the published rooms (6 to 54 receptacles). Small: 6 to 10 receptacles, about 12 things."""

MOST_AT_A_PLACE = 5

T = TypeVar("T")


class Receptacle(NamedTuple):
    name: str
    kind: str
    place: str
    openable: bool


class Thing(NamedTuple):
    """`inside` are the receptacles it lies in or on. It is empty for a window, or a thing behind a sofa."""

    name: str
    kind: str
    place: str
    inside: tuple[Receptacle, ...]
    within: str | None = None
    """The thing it lies in, such as a mug for a spoon."""


@dataclass(frozen=True, slots=True)
class Layout:
    room: str
    size: Size
    start: str
    """The agent's first place. No receptacle can be reached from it."""
    receptacles: tuple[Receptacle, ...]

    @property
    def furniture(self) -> tuple[str, ...]:
        """The kind of every receptacle, sorted, with repetitions."""
        return tuple(sorted(receptacle.kind for receptacle in self.receptacles))


@dataclass(frozen=True, slots=True)
class Household:
    layout: Layout
    things: tuple[Thing, ...]

    def arrangement(self) -> str:
        """A description without names: which receptacles share a place or can be opened, and what they contain.

        Two households with equal descriptions are the same puzzle, whatever the names of their things."""
        contents: dict[str, list[str]] = {}
        for thing in self.things:
            for receptacle in thing.inside:
                contents.setdefault(receptacle.name, []).append(thing.kind)
        places: dict[str, list[str]] = {}
        for name, kind, place, openable in self.layout.receptacles:
            places.setdefault(place, []).append(f"{kind}{'?' * openable}[{' '.join(sorted(contents.get(name, ())))}]")
        return "; ".join(sorted(" + ".join(sorted(each)) for each in places.values()))


# ---- draws -----------------------------------------------------------------------------------------


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """Draw one of `options` uniformly."""
    return options[int(rng.random() * len(options))]


def _weighted(rng: np.random.Generator, options: Sequence[Receptacle]) -> Receptacle:
    """Draw a receptacle. Kinds that hold many things, but few kinds of things, are more likely."""
    weights = [_PULL[option.kind] for option in options]
    left = rng.random() * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        left -= weight
        if left < 0:
            return option
    return options[-1]


def _number(rng: np.random.Generator, count: Count) -> int:
    """Draw a number from low to high, skewed so that the mean is about `count.mean`."""
    if rng.random() >= count.chance:
        return 0
    if count.mean <= count.low:
        return count.low
    skew = (count.high - count.mean) / (count.mean - count.low)
    return count.low + round((count.high - count.low) * math.pow(rng.random(), skew))


# ---- floor plans -----------------------------------------------------------------------------------


def draw_layout(rng: np.random.Generator, room: str, size: Size = "full") -> Layout:
    """Draw a room with furniture along its walls. Raises `ValueError` for an unknown room or size."""
    if room not in FURNITURE:
        raise ValueError(f"room must be one of {', '.join(FURNITURE)}; got {room!r}")
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}; got {size!r}")
    kinds = _draw_furniture(rng, room, size)
    plan = _FloorPlan(rng, len(kinds))
    receptacles: list[Receptacle] = []
    for kind in kinds:
        x, z, place = plan.position(kind, receptacles)
        openable = rng.random() < OPENABLE.get(kind, 0.0)
        receptacles.append(Receptacle(plan.name(kind, x, z), kind, place, openable))
    return Layout(room, size, plan.middle(), tuple(receptacles))


def _draw_furniture(rng: np.random.Generator, room: str, size: Size) -> list[str]:
    """Draw the kinds of receptacles, large before small."""
    while True:
        numbers = {kind: _number(rng, count) for kind, count in FURNITURE[room].items()}
        if size == "small":
            numbers = _fewer(rng, numbers, ESSENTIAL[room])
        if 6 <= sum(numbers.values()) <= 54:
            return [kind for kind, number in numbers.items() for _ in range(number)]


def _fewer(rng: np.random.Generator, numbers: dict[str, int], essential: Sequence[str]) -> dict[str, int]:
    """The essential kinds once, and others, at most two of a kind, until there are 6 to 10."""
    others = [kind for kind, number in numbers.items() for _ in range(min(2, number) - (kind in essential))]
    count = int(rng.integers(6, 11)) - len(essential)
    chosen = Counter(others[n] for n in rng.permutation(len(others))[:count])
    return {kind: chosen[kind] + (kind in essential) for kind in numbers}


class _FloorPlan:
    """A rectangular room with a spot at every half metre of wall. Each spot is used once.

    Pieces of furniture that are reached from one place share a spot.
    """

    def __init__(self, rng: np.random.Generator, pieces: int) -> None:
        self.rng = rng
        # Enough wall for every piece, and for some windows or chairs.
        self.width, self.depth = (max(4.0, 0.16 * pieces * rng.uniform(1.0, 1.5)) for _ in range(2))
        spots = [(x, side, 0 if side > 0 else 2) for x in _steps(self.width) for side in (1, -1)]
        spots += [(z, side, 1 if side > 0 else 3) for z in _steps(self.depth) for side in (1, -1)]
        self._spots = [spots[n] for n in rng.permutation(len(spots))]
        self._next = 0
        self._at: dict[str, tuple[float, float]] = {}
        self._crowd: Counter[str] = Counter()
        self._names: set[str] = set()

    def position(self, kind: str, others: Sequence[Receptacle]) -> tuple[float, float, str]:
        """The position (x, z) of a piece, and the place from which it is reached."""
        chance, companions = BESIDE.get(kind, (0.0, ()))
        if self.rng.random() < chance:
            companion = pick(self.rng, companions)
            near = [o.place for o in others if o.kind == companion and self._crowd[o.place] < MOST_AT_A_PLACE]
            if near:
                place = pick(self.rng, near)
                self._crowd[place] += 1
                return (*self._at[place], place)
        return self.spot()

    def spot(self) -> tuple[float, float, str]:
        """An unused position (x, z) at a wall, and the place from which it is seen."""
        along, side, turn = self._spots[self._next % len(self._spots)]  # there are more spots than receptacles
        down = pick(self.rng, (60, 45, 30))
        self._next += 1
        x, z = (along, side * self.depth / 2) if turn in (0, 2) else (side * self.width / 2, along)
        back = 0.75 * side
        stand = (x, z - back) if turn in (0, 2) else (x - back, z)
        place = _place(*stand, turn, down)
        self._at.setdefault(place, (x, z))
        self._crowd[place] += 1
        return x, z, place

    def middle(self) -> str:
        """A place in the middle of the room. Nothing can be reached from it, because its downward angle is unique."""
        return _place(self.rng.uniform(-1, 1), self.rng.uniform(-1, 1), int(self.rng.integers(4)), -15)

    def name(self, kind: str, x: float, z: float) -> str:
        """A unique name for an object at about (x, z)."""
        base, tail = (kind.removesuffix("Basin"), f"_bar_{kind}") if kind.endswith("Basin") else (kind, "")
        draw = self.rng.random
        while True:
            x_, y_, z_ = x + 0.6 * draw() - 0.3, 0.05 + 2.1 * draw(), z + 0.6 * draw() - 0.3
            name = _spell(f"{base}_bar_{x_:+06.2f}_bar_{y_:+06.2f}_bar_{z_:+06.2f}{tail}")
            if name not in self._names:
                self._names.add(name)
                return name


def _steps(length: float) -> list[float]:
    """The positions at every half metre of a wall, without the corners."""
    count = int(length / 0.5) - 1
    return [0.5 * (n - (count - 1) / 2) for n in range(count)]


def _place(x: float, z: float, turn: int, down: int) -> str:
    return _spell(f"loc_bar_{round(4 * x)}_bar_{round(4 * z)}_bar_{turn}_bar_{down}")


def _spell(name: str) -> str:
    return name.translate(_SPELLED)


_SPELLED = str.maketrans({"-": "_minus_", "+": "_plus_", ".": "_dot_"})


# ---- things ----------------------------------------------------------------------------------------


def furnish(
    rng: np.random.Generator,
    layout: Layout,
    needs: Mapping[str, int],
    keep_out: tuple[str, str] | None = None,
) -> Household:
    """Draw the things of a household in `layout`.

    `needs` has the numbers of the things that the task is about, by kind; they are in reach. `keep_out` is a kind of
    thing and a kind of receptacle that must not hold it. Raises `ValueError` if no receptacle can hold a needed kind;
    see `sources`.
    """
    numbers = {kind: _number(rng, count) for kind, count in THINGS[layout.room].items()}
    if layout.size == "small":
        numbers = _about_twelve(rng, numbers, needs)
    numbers |= needs
    plan = _FloorPlan(rng, len(layout.receptacles))
    things: list[Thing] = []
    for kind, number in numbers.items():
        places = [r for r in layout.receptacles if kind in _LIES_IN[r.kind] and (kind, r.kind) != keep_out]
        if not places and kind in needs:
            raise ValueError(f"no receptacle of this {layout.room} can hold a {kind}")
        for _ in range(number):
            things.append(_draw_thing(rng, plan, layout, kind, places, keep_out))
    return Household(layout, tuple(_nest(rng, things)))


def sources(furniture: Iterable[str], kind: str, but: str = "") -> bool:
    """Whether some receptacle, other than the kind `but`, can have a thing of this kind."""
    return any(kind in _LIES_IN[receptacle] for receptacle in furniture if receptacle != but)


_LIES_IN = {kind: frozenset(HOLDS[kind]) | frozenset(STANDS.get(kind, ())) for kind in HOLDS}
_PULL = {kind: CROWD[kind] / max(1, len(lies)) for kind, lies in _LIES_IN.items()}


def _about_twelve(rng: np.random.Generator, numbers: Mapping[str, int], needs: Mapping[str, int]) -> dict[str, int]:
    """Of the things that can be picked up so many that there are about twelve, with those that the task needs."""
    loose = [kind for kind, number in numbers.items() for _ in range(number) if kind not in FIXED | needs.keys()]
    others = int(rng.integers(10, 14)) - sum(needs.values())
    return dict(Counter(loose[n] for n in np.sort(rng.permutation(len(loose))[:others])))


def _draw_thing(
    rng: np.random.Generator,
    plan: _FloorPlan,
    layout: Layout,
    kind: str,
    places: Sequence[Receptacle],
    keep_out: tuple[str, str] | None,
) -> Thing:
    """Draw a thing in one of `places`, sometimes in two. Without `places` it is at a wall."""
    if not places:
        x, z, place = plan.spot()
        return Thing(plan.name(kind, x, z), kind, place, ())
    first = _weighted(rng, places)
    inside = [first]
    chance, kinds = ALSO_IN.get((kind, first.kind), (0.0, ()))
    if chance and rng.random() < chance:
        others = [r for r in layout.receptacles if r.kind in kinds and r != first and (kind, r.kind) != keep_out]
        inside += [pick(rng, others)] if others else []
    x, z = rng.uniform(-3, 3), rng.uniform(-3, 3)
    return Thing(plan.name(kind, x, z), kind, first.place, tuple(inside))


def _nest(rng: np.random.Generator, things: Sequence[Thing]) -> list[Thing]:
    """`things`, some of them nested, such as a spoon in a mug if both are in one receptacle."""
    bowls = [thing for thing in things if thing.kind in PROPERTIES["isReceptacleObject"] and thing.inside]
    nested = []
    for thing in things:
        if thing.kind in NESTS and rng.random() < 0.05:
            around = [bowl for bowl in bowls if bowl.inside == thing.inside]
            if around:
                thing = thing._replace(within=pick(rng, around).name)
        nested.append(thing)
    return nested


def attraction(receptacle: str, thing: str) -> float:
    """How likely a receptacle of a kind holds a thing of a kind, up to a factor. Both in lower case."""
    return _PULL_LOWER[receptacle] if thing in _LIES_IN_LOWER.get(receptacle, ()) else 0.0


_LIES_IN_LOWER = {kind.lower(): frozenset(lie.lower() for lie in lies) for kind, lies in _LIES_IN.items()}
_PULL_LOWER = {kind.lower(): pull for kind, pull in _PULL.items()}
