"""The subset of PDDL that game files use: nested lists, facts, and goals compiled to tests of a state."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

from crbc_envs.errors import DataError
from crbc_envs.storage.files import shown

S = TypeVar("S")
T = TypeVar("T")
Test = Callable[[S], bool]
Formula = list[Any]
"""A nested list of names: ["and", ["holds", "?a", "?o"], ...]."""

Facts = Mapping[str, Sequence[tuple[str, ...]]]
"""Argument tuples by predicate."""

DEEPEST = 64
"""The most parentheses that may be open at once. Published games have up to 8."""

LONGEST_NAME = 128
"""The most characters of a name. Published ones have up to 87; the planner of TextWorld joins five in 1,024 bytes."""

_LOGIC = {"and", "or", "not", "exists", "=", "forall", "imply", "when"}
_TOKEN = re.compile(r"[()]|[^\s()]+")
_FACT = re.compile(r"\(\s*([^()\s][^()]*)\)")
_COMMENT = re.compile(r";[^\n]*")


def strip_comments(text: str) -> str:
    """`text` without comments, which begin with `;` and end with the line."""
    return _COMMENT.sub("", text) if ";" in text else text


def parse_lists(text: str) -> Formula:
    """The first parenthesised expression of `text` as nested lists, in lower case. `;` begins a comment.

    Raises `DataError` if a parenthesis is never closed, or more than `DEEPEST` are open at once.
    """
    stack: list[Formula] = [[]]
    for token in _TOKEN.findall(strip_comments(text).lower()):
        if token == "(":
            if len(stack) > DEEPEST:
                raise DataError(f"a PDDL expression is nested too deeply: more than {DEEPEST} parentheses are open")
            stack.append([])
        elif token == ")" and len(stack) > 1:
            done = stack.pop()
            stack[-1].append(done)
            if len(stack) == 1:
                return done
        else:
            stack[-1].append(token)
    raise DataError("a PDDL expression is cut short: a parenthesis is never closed")


def parse_facts(text: str) -> dict[str, list[tuple[str, ...]]]:
    """The ground facts in `text`, in lower case, without duplicates, by predicate and sorted."""
    facts: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for fact in {tuple(fact.split()) for fact in set(_FACT.findall(text))}:
        facts[fact[0]].append(fact[1:])
    return {predicate: sorted(facts[predicate]) for predicate in sorted(facts)}


def typed(names: Sequence[str]) -> dict[str, str]:
    """{name: type} of a PDDL list such as `a b - object c - location`, in its order."""
    if names[1::3].count("-") * 3 == len(names):  # each name has its own type, as in all games
        return dict(zip(names[::3], names[2::3], strict=True))
    types: dict[str, str] = {}
    waiting: list[str] = []
    rest = iter(names)
    for name in rest:
        if name == "-":
            types.update(dict.fromkeys(waiting, next(rest, "")))
            waiting = []
        else:
            waiting.append(name)
    return types


def check_goal(goal: Any, arity: Mapping[str, int]) -> None:
    """Raise `DataError` for forms other than and, or, not, exists, = and facts with the right number of names."""
    match goal:
        case ["and" | "or", *parts] | ["not", *parts] if goal[0] != "not" or len(parts) == 1:
            for part in parts:
                check_goal(part, arity)
        case ["exists", [*variables], body] if all(isinstance(name, str) for name in variables):
            check_goal(body, arity)
        case ["=", str(), str()]:
            pass
        case [str(predicate), *names] if predicate not in _LOGIC and all(isinstance(name, str) for name in names):
            if predicate not in arity:
                raise DataError(f"the goal uses {shown(predicate)}, which the domain does not have")
            if len(names) != arity[predicate]:
                raise DataError(f"the goal uses {predicate} with {len(names)} names; it has {arity[predicate]}")
        case _:
            raise DataError(f"the goal has an unknown form: {shown(goal)}")


class Grounder:
    """Compiles a goal to one test of a state. Facts that never change are evaluated once, at compile time.

    `facts` are the known facts. A predicate in `fluents` changes; its entry makes the test of one fact from
    its arguments, or returns False if the fact can never hold. `names` are all names by type.
    """

    def __init__(
        self,
        facts: Facts,
        names: Mapping[str, Sequence[str]],
        fluents: Mapping[str, Callable[..., Test[Any] | bool]],
    ) -> None:
        self.facts = facts
        self.known = {predicate: frozenset(rows) for predicate, rows in facts.items()}
        self.names = names
        self.fluents = fluents
        self._matched: dict[tuple[str, tuple[str, ...]], list[dict[str, str]]] = {}

    def test(self, goal: Formula) -> Test[Any]:
        """The test of a goal that `check_goal` accepts."""
        condition = self._ground(goal, {})
        return (lambda state: condition) if isinstance(condition, bool) else condition

    def _ground(self, formula: Formula, bound: Mapping[str, str]) -> Test[Any] | bool:
        match formula:
            case ["and", *parts]:
                return _joined(all, (self._ground(part, bound) for part in parts))
            case ["or", *parts]:
                return _joined(any, (self._ground(part, bound) for part in parts))
            case ["not", part]:
                denied = self._ground(part, bound)
                return not denied if isinstance(denied, bool) else lambda state: not denied(state)
            case ["exists", [*outer], ["exists", [*inner], body]] if not set(typed(outer)) & set(typed(inner)):
                return self._ground(["exists", outer + inner, body], bound)  # one search instead of two nested ones
            case ["exists", [*variables], body]:
                parts = body[1:] if body[:1] == ["and"] else [body]
                static = [part for part in parts if part[0] in self.facts and part[0] not in self.fluents]
                rest = ["and", *(part for part in parts if part not in static)]
                return _joined(any, (self._ground(rest, each) for each in self._bindings(variables, static, bound)))
            case ["=", a, b]:
                return bound.get(a, a) == bound.get(b, b)
            case [predicate, *arguments]:
                ground = tuple(bound.get(name, name) for name in arguments)
                if predicate in self.fluents:
                    return self.fluents[predicate](*ground)
                return ground in self.known.get(predicate, ())
        raise AssertionError("check_goal lets no other form pass")

    def _bindings(
        self, variables: Sequence[str], facts: Sequence[Formula], bound: Mapping[str, str]
    ) -> Iterator[Mapping[str, str]]:
        """All bindings of `variables` for which all of `facts` hold."""
        types = typed(variables)
        # A variable shadows an outer one of the same name.
        bindings = [{name: value for name, value in bound.items() if name not in types}]
        for predicate, *arguments in sorted(facts, key=lambda part: sum(name in types for name in part[1:])):
            bindings = [{**each, **more} for each in bindings for more in self._matches(predicate, arguments, each)]
        for each in bindings:
            free = [name for name in types if name not in each]
            for values in product(*(self.names.get(types[name], ()) for name in free)):
                yield {**each, **dict(zip(free, values, strict=True))}

    def _matches(self, predicate: str, arguments: Sequence[str], bound: Mapping[str, str]) -> Sequence[dict[str, str]]:
        """All bindings of the free variables for which the fact holds."""
        pattern = tuple(bound.get(name, name) for name in arguments)
        free = [(i, name) for i, name in enumerate(pattern) if name.startswith("?")]
        if not free:
            return [{}] if pattern in self.known[predicate] else []
        if (predicate, pattern) not in self._matched:
            known = [fact for fact in self.facts[predicate] if len(fact) == len(pattern)]
            for i, name in enumerate(pattern):
                if not name.startswith("?"):
                    known = [fact for fact in known if fact[i] == name]
            news = [(fact, {name: fact[i] for i, name in free}) for fact in known]
            # A variable that occurs twice must have one value.
            self._matched[predicate, pattern] = [new for fact, new in news if all(fact[i] == new[n] for i, n in free)]
        return self._matched[predicate, pattern]


def _joined(by: Callable[[Iterable[bool]], bool], parts: Iterable[Test[Any] | bool]) -> Test[Any] | bool:
    """Tests joined by `all` or `any`. A part that is known decides, or is left out."""
    decides, tests = by is any, []
    for part in parts:
        if part is decides:
            return part
        if not isinstance(part, bool):
            tests.append(part)
    return (lambda state: by(test(state) for test in tests)) if tests else not decides
