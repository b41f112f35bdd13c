"""Households drawn at random: a floor plan with its furniture, and the things that lie about in it.

A `Layout` is a room and its receptacles, each with the place it is reached from; a `Household` is a
layout with things. Splits hold layouts apart by `Layout.furniture`, which is all an agent is told of a
room when it enters. Names follow the published games: a kind and where it stands, in metres, with signs
and points spelled out; a place is a spot on a grid of 25 cm, which way one looks, and how far down.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from crbc_envs.alfworld.games.tables import (
    ALSO_IN,
    BESIDE,
    CROWD,
    ESSENTIAL,
    FIXED,
    FURNITURE,
    HOLDS,
    NESTS,
    OPENABLE,
    PROPERTIES,
    STANDS,
    THINGS,
    Count,
)

Size = Literal["full", "small"]
SIZES: tuple[Size, ...] = ("full", "small")
"""Rooms as large as the published ones (6 to 54 receptacles), or small: 6 to 10 receptacles and about 12 things."""

MOST_AT_A_PLACE = 5

T = TypeVar("T")


class Receptacle(NamedTuple):
    name: str
    kind: str
    place: str
    openable: bool


class Thing(NamedTuple):
    """`inside` are the receptacles it lies in or on: none for a window or what fell behind a sofa."""

    name: str
    kind: str
    place: str
    inside: tuple[Receptacle, ...]
    within: str | None = None
    """The thing it lies in, a spoon in a mug."""


@dataclass(frozen=True, slots=True)
class Layout:
    room: str
    size: Size
    start: str
    """The place the agent starts at; no receptacle can be reached from it."""
    receptacles: tuple[Receptacle, ...]

    @property
    def furniture(self) -> tuple[str, ...]:
        """The kinds of the receptacles, each as often as it is there, sorted."""
        return tuple(sorted(receptacle.kind for receptacle in self.receptacles))


@dataclass(frozen=True, slots=True)
class Household:
    layout: Layout
    things: tuple[Thing, ...]

    def arrangement(self) -> str:
        """All of it up to names: what stands together, what can be opened, what lies in what.

        Two households are one puzzle where these are equal, whatever their things are called."""
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
    """One of `options`, each as likely."""
    return options[int(rng.random() * len(options))]


def _weighted(rng: np.random.Generator, options: Sequence[Receptacle]) -> Receptacle:
    """A receptacle; a crowded kind is more likely, and one that holds little else."""
    weights = [_PULL[option.kind] for option in options]
    left = rng.random() * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        left -= weight
        if left < 0:
            return option
    return options[-1]


def _number(rng: np.random.Generator, count: Count) -> int:
    """From low to high, skewed so that the mean is about the one that was counted."""
    if rng.random() >= count.chance:
        return 0
    if count.mean <= count.low:
        return count.low
    skew = (count.high - count.mean) / (count.mean - count.low)
    return count.low + round((count.high - count.low) * math.pow(rng.random(), skew))


# ---- floor plans -----------------------------------------------------------------------------------


def draw_layout(rng: np.random.Generator, room: str, size: Size = "full") -> Layout:
    """A room with its furniture along the walls. Raises `ValueError` for an unknown room or size."""
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
    """The kinds of receptacles, large before small."""
    while True:
        numbers = {kind: _number(rng, count) for kind, count in FURNITURE[room].items()}
        if size == "small":
            numbers = _fewer(rng, numbers, ESSENTIAL[room])
        if 6 <= sum(numbers.values()) <= 54:
            return [kind for kind, number in numbers.items() for _ in range(number)]


def _fewer(rng: np.random.Generator, numbers: dict[str, int], essential: Sequence[str]) -> dict[str, int]:
    """The essential kinds once, and others up to 6 to 10 in all, two of a kind at most."""
    others = [kind for kind, number in numbers.items() for _ in range(min(2, number) - (kind in essential))]
    wanted = int(rng.integers(6, 11)) - len(essential)
    chosen = Counter(others[n] for n in rng.permutation(len(others))[:wanted])
    return {kind: chosen[kind] + (kind in essential) for kind in numbers}


class _FloorPlan:
    """A rectangle of walls with a spot every half metre to stand and look at them; gives out each spot once,
    but to furniture that is reached from one place together."""

    def __init__(self, rng: np.random.Generator, pieces: int) -> None:
        self.rng = rng
        # Enough wall for every piece, and for a window or a chair here and there.
        self.width, self.depth = (max(4.0, 0.16 * pieces * rng.uniform(1.0, 1.5)) for _ in range(2))
        spots = [(x, side, 0 if side > 0 else 2) for x in _steps(self.width) for side in (1, -1)]
        spots += [(z, side, 1 if side > 0 else 3) for z in _steps(self.depth) for side in (1, -1)]
        self._spots = [spots[n] for n in rng.permutation(len(spots))]
        self._next = 0
        self._at: dict[str, tuple[float, float]] = {}
        self._crowd: Counter[str] = Counter()
        self._names: set[str] = set()

    def position(self, kind: str, others: Sequence[Receptacle]) -> tuple[float, float, str]:
        """Where a piece stands (x, z) and the place it is reached from."""
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
        """A stretch of wall (x, z) nobody has used, and the place it is seen from."""
        along, side, turn = self._spots[self._next % len(self._spots)]  # never used up by receptacles
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
        """A place in the middle of the room from which nothing can be reached: one looks down a way nobody does."""
        return _place(self.rng.uniform(-1, 1), self.rng.uniform(-1, 1), int(self.rng.integers(4)), -15)

    def name(self, kind: str, x: float, z: float) -> str:
        """A name for something that stands at about (x, z); never the same twice."""
        base, tail = (kind.removesuffix("Basin"), f"_bar_{kind}") if kind.endswith("Basin") else (kind, "")
        draw = self.rng.random
        while True:
            x_, y_, z_ = x + 0.6 * draw() - 0.3, 0.05 + 2.1 * draw(), z + 0.6 * draw() - 0.3
            name = _spell(f"{base}_bar_{x_:+06.2f}_bar_{y_:+06.2f}_bar_{z_:+06.2f}{tail}")
            if name not in self._names:
                self._names.add(name)
                return name


def _steps(length: float) -> list[float]:
    """Every half metre of a wall, its corners left out."""
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
    """A household in `layout`. `needs` says how many of a kind must be within reach at least, `keep_out`
    names a kind of thing and a kind of receptacle it is never in. Raises `ValueError` where a needed kind
    has nowhere to be; see `sources`."""
    numbers = {kind: _number(rng, count) for kind, count in THINGS[layout.room].items()}
    if layout.size == "small":
        numbers = _twelve(rng, numbers)
    for kind, number in needs.items():
        numbers[kind] = max(numbers.get(kind, 0), number)
    plan = _FloorPlan(rng, len(layout.receptacles))
    things: list[Thing] = []
    for kind, number in numbers.items():
        places = [r for r in layout.receptacles if kind in _LIES_IN[r.kind] and (kind, r.kind) != keep_out]
        if not places and kind in needs:
            raise ValueError(f"a {kind} has nowhere to be in this {layout.room}")
        for _ in range(number):
            things.append(_lay(rng, plan, layout, kind, places, keep_out))
    return Household(layout, tuple(_nest(rng, things)))


def sources(furniture: Iterable[str], kind: str, but: str = "") -> bool:
    """Whether a thing of this kind can be within reach, receptacles of the kind `but` aside."""
    return any(kind in _LIES_IN[receptacle] for receptacle in furniture if receptacle != but)


_LIES_IN = {kind: frozenset(HOLDS[kind]) | frozenset(STANDS.get(kind, ())) for kind in HOLDS}
_PULL = {kind: CROWD[kind] / max(1, len(lies)) for kind, lies in _LIES_IN.items()}


def _twelve(rng: np.random.Generator, numbers: Mapping[str, int]) -> dict[str, int]:
    """About twelve of the things one can pick up."""
    loose = [kind for kind, number in numbers.items() for _ in range(number) if kind not in FIXED]
    return dict(Counter(loose[n] for n in np.sort(rng.permutation(len(loose))[: int(rng.integers(10, 14))])))


def _lay(
    rng: np.random.Generator,
    plan: _FloorPlan,
    layout: Layout,
    kind: str,
    places: Sequence[Receptacle],
    keep_out: tuple[str, str] | None,
) -> Thing:
    """A thing in one of `places`, now and then in two; along a wall where there are none."""
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
    """`things`, with a spoon in a mug now and then where both lie in one receptacle."""
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
    """How likely a thing of a kind is in a receptacle of a kind, up to a factor; both in lower case."""
    return _PULL_LOWER[receptacle] if thing in _LIES_IN_LOWER.get(receptacle, ()) else 0.0


_LIES_IN_LOWER = {kind.lower(): frozenset(lie.lower() for lie in lies) for kind, lies in _LIES_IN.items()}
_PULL_LOWER = {kind.lower(): pull for kind, pull in _PULL.items()}
