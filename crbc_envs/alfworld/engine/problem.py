"""Reads a PDDL problem: numbers its names, and makes the start state and the test of the goal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from crbc_envs.alfworld.engine.pddl import (
    LONGEST_NAME,
    Facts,
    Grounder,
    Test,
    check_goal,
    parse_facts,
    parse_lists,
    strip_comments,
    typed,
)
from crbc_envs.alfworld.engine.state import State
from crbc_envs.errors import DataError
from crbc_envs.storage.files import shown

CONDITIONS = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "istoggled": "toggled", "issliced": "sliced"}
"""Predicates of one object that actions change, and their fields of `State`."""

NOT_TRACKED = ("checked", "holdsany", "ison")
"""Predicates that actions change but no published goal uses. The engine does not track them."""

ARITY = {
    **dict.fromkeys(("openable", "opened", "isreceptacleobject", "isreceptacleobjectfull", "checked", "full"), 1),
    **dict.fromkeys(("examined", "holdsany", "holdsanyreceptacleobject", "pickupable", "moveable"), 1),
    **dict.fromkeys(("isclean", "cleanable", "ishot", "heatable", "iscool", "coolable"), 1),
    **dict.fromkeys(("toggleable", "ison", "istoggled", "sliceable", "issliced"), 1),
    **dict.fromkeys(("atlocation", "receptacleatlocation", "objectatlocation", "inreceptacle", "wasinreceptacle"), 2),
    **dict.fromkeys(("inreceptacleobject", "receptacletype", "cancontain", "objecttype", "holds"), 2),
}
"""The domain's predicates, and the number of names of each."""

Fluent = Callable[..., Test[State] | bool]
"""Makes the test of a fact from its arguments. False if the fact can never hold."""


class Problem:
    """A parsed PDDL problem with numbered names."""

    def __init__(self, text: str) -> None:
        head, _, rest = strip_comments(text).lower().partition("(:init")
        init, _, goal = rest.partition("(:goal")
        if "(:objects" not in head or not goal:
            raise DataError("the problem is cut short: it needs :objects, :init and :goal, in this order")
        types = typed(head.partition("(:objects")[2].rstrip(") \n").split())
        self.facts = parse_facts(init)
        _check(types, self.facts)
        self.goal = parse_lists(goal)
        check_goal(self.goal, ARITY)
        self.by_type: dict[str, list[str]] = {}
        for name in sorted(types):
            self.by_type.setdefault(types[name], []).append(name)
        self.names = numbered_names({name for rows in self.facts.values() for fact in rows for name in fact})
        # Some published games give an object's properties, but not its type or place.
        kinds = self.pairs("objecttype")
        self.object_type = {name: kinds.get(name, "") for name in self.by_type.get("object", ()) if name in self.names}
        self.receptacle_type = self.pairs("receptacletype")
        self.objects = {name: n for n, name in enumerate(self.object_type)}
        self.receptacles = {name: n for n, name in enumerate(self.receptacle_type)}
        self.places = {name: n for n, name in enumerate(self.by_type.get("location", ()))}

    def pairs(self, predicate: str) -> dict[str, str]:
        return {name: other for name, other in self.facts.get(predicate, ())}  # noqa: C416  says that there are two

    def bits_of(self, predicate: str, numbers: Mapping[str, int]) -> int:
        return sum(1 << numbers[name] for (name,) in self.facts.get(predicate, ()))

    def objects_with(self, predicate: str) -> int:
        return self.bits_of(predicate, self.objects)

    def rows(self, predicate: str, numbers: Mapping[str, int]) -> tuple[int, ...]:
        """For each second argument of the predicate, the bits of the objects that are its first argument."""
        rows = [0] * len(numbers)
        for name, row in self.facts.get(predicate, ()):
            rows[numbers[row]] |= 1 << self.objects[name]
        return tuple(rows)

    def place_of(self) -> tuple[int, ...]:
        where = self.pairs("receptacleatlocation")
        return tuple(self.places[where[name]] for name in self.receptacles)

    def receptacles_at(self) -> tuple[tuple[int, ...], ...]:
        at: list[list[int]] = [[] for _ in self.places]
        for r, place in enumerate(self.place_of()):
            at[place].append(r)
        return tuple(map(tuple, at))

    def accepts(self) -> tuple[int, ...]:
        by_kind: dict[str, int] = {}
        for name, kind in self.object_type.items():
            by_kind[kind] = by_kind.get(kind, 0) | 1 << self.objects[name]
        accepts: dict[str, int] = {}
        for receptacle, kind in self.facts.get("cancontain", ()):
            accepts[receptacle] = accepts.get(receptacle, 0) | by_kind.get(kind, 0)
        return tuple(accepts.get(kind, 0) for kind in self.receptacle_type.values())

    def start(self) -> State:
        places = [place for _, place in self.facts.get("atlocation", ())]
        if len(places) != 1:
            raise DataError(f"the problem has {len(places)} agents with a place; there must be one")
        held = [self.objects[name] for _, name in self.facts.get("holds", ())]
        return State(
            place=self.places[places[0]],
            held=held[0] if held else -1,
            opened=self.bits_of("opened", self.receptacles),
            inside=self.rows("inreceptacle", self.receptacles),
            beside=self.rows("objectatlocation", self.places),
            taken=(0,) * len(self.receptacles),
            **{name: self.objects_with(predicate) for predicate, name in CONDITIONS.items()},
        )

    def won(self) -> Test[State]:
        return Grounder(self.facts, self.by_type, self.fluents()).test(self.goal)

    def fluents(self) -> dict[str, Fluent]:
        """Tests of the facts that actions change. The test of the goal is composed of them."""
        objects, receptacles, places = self.objects, self.receptacles, self.places
        tests = {predicate: _bit(name, objects) for predicate, name in CONDITIONS.items()}
        tests["opened"] = _bit("opened", receptacles)
        tests["inreceptacle"] = _cell("inside", objects, receptacles)
        tests["objectatlocation"] = _cell("beside", objects, places)
        tests["holds"] = _equal("held", objects)
        tests["atlocation"] = _equal("place", places)
        return {**tests, **{predicate: _refuse(predicate) for predicate in NOT_TRACKED}}


def _check(types: Mapping[str, str], facts: Facts) -> None:
    """Raise `DataError` for a fact that the domain does not have, and for a name that cannot be shown."""
    for predicate, rows in facts.items():
        if predicate not in ARITY:
            raise DataError(f"the problem uses {shown(predicate)}, which the domain does not have")
        wrong = next((fact for fact in rows if len(fact) != ARITY[predicate]), None)
        if wrong is not None:
            raise DataError(f"the problem uses {predicate} with {len(wrong)} names; it has {ARITY[predicate]}")
    names = set(types).union(*(fact for rows in facts.values() for fact in rows))
    hidden = next((name for name in sorted(names) if not name.isprintable()), None)
    if hidden is not None:
        raise DataError(f"the problem has a name that cannot be shown: {shown(hidden)}")
    longest = max(map(len, types), default=0)
    if longest > LONGEST_NAME:
        raise DataError(f"the problem has a name of {longest:,} characters, and at most {LONGEST_NAME} are read")


def _bit(part: str, numbers: Mapping[str, int]) -> Fluent:
    field = State._fields.index(part)

    def fluent(name: str) -> Test[State] | bool:
        bit = 1 << numbers[name] if name in numbers else 0
        return bit > 0 and (lambda state: bool(state[field] & bit))

    return fluent


def _refuse(predicate: str) -> Fluent:
    def fluent(*names: str) -> bool:
        raise DataError(f"the goal uses {predicate}, which the engine does not track")

    return fluent


def _cell(part: str, numbers: Mapping[str, int], rows: Mapping[str, int]) -> Fluent:
    field = State._fields.index(part)

    def fluent(name: str, row: str) -> Test[State] | bool:
        if name not in numbers or row not in rows:
            return False
        bit, n = 1 << numbers[name], rows[row]

        def test(state: Any) -> bool:
            return bool(state[field][n] & bit)

        return test

    return fluent


def _equal(part: str, numbers: Mapping[str, int]) -> Fluent:
    field = State._fields.index(part)

    def fluent(agent: str, name: str) -> Test[State] | bool:
        n = numbers.get(name)
        return n is not None and (lambda state: state[field] == n)

    return fluent


def numbered_names(ids: Iterable[str]) -> dict[str, str]:
    """The name of each id: "apple_bar__plus_00_dot_59..." becomes "apple 2".

    Ids with the same text before the first "_bar_" are numbered together; the first in order gets the highest
    number. An id without "_bar_" is its own name, followed by a blank.
    """
    ordered = sorted(ids)
    kinds = {name: name.partition("_bar_")[0] + "basin" * ("basin" in name) for name in ordered if "_bar_" in name}
    left = Counter(kinds.values())
    names = {name: f"{name} " for name in ordered}
    for name, kind in kinds.items():
        names[name] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return names
