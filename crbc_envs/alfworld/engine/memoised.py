"""TextWorld with what it computes again and again remembered: 0.9 s a game of 126 steps, for long comparisons.

    with memoised():
        game = TextWorldGame(file)      # and all steps

The engine and its rules stay TextWorld's. Remembered are the translation of a problem (it is made four times), the
parse of the grammar (all games share one but for the sentence of the task), of templates and of conditions, and the
command strings of equal situations. Names are not copied again for every symbol of a text. The planner's second
translation is left out, as nothing here plans with it.
`tests/envs/alfworld/test_memoised.py` compares it with TextWorld as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any
from unittest.mock import patch

TASK = re.compile(r"(Your task is to: )([^\"\n]*?)(?=\"|\\n|\n)")
"""The sentence of a task within a grammar."""

STAND_IN = "UNKNOWN GOAL."
"""What stands in place of the sentence while a grammar is parsed, as in ALFWorld's own files."""

NAMED = re.compile(r"(\w+)\(")
"""The predicates of a template's conditions."""


@contextmanager
def memoised() -> Iterator[None]:
    """Remember, while the context lasts. Raises `ImportError` without the original engine's packages."""
    import fast_downward
    from textworld.envs.pddl import logic, textgen

    with ExitStack() as stack:

        def replace(where: Any, name: str, by: Any) -> None:
            stack.enter_context(patch.object(where, name, by))

        replace(fast_downward, "pddl2sas", _translated(fast_downward.pddl2sas))
        replace(logic, "_parse_and_convert", _parsed_grammar(logic._parse_and_convert, textgen))
        replace(textgen, "_parse_and_convert", _copies(textgen._parse_and_convert))
        replace(textgen.Rule, "parse_conjunctive_query", lru_cache(1_024)(textgen.Rule.parse_conjunctive_query))
        replace(textgen, "copy_context", _copied_context)
        replace(textgen.ContextSensitiveGrammar, "derive", _derived(textgen))
        yield


def _translated(translate: Callable[..., Any]) -> Callable[..., Any]:
    last = lru_cache(2)(translate)

    def pddl2sas(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        return last(domain, problem, verbose)

    return pddl2sas


def _parsed_grammar(parse: Callable[..., Any], textgen: Any) -> Callable[..., Any]:
    parsed = lru_cache(8)(parse)

    def parse_and_convert(text: str, rule_name: str) -> Any:
        found = TASK.search(text)
        if rule_name != "pddlStart" or found is None:
            return parse(text, rule_name=rule_name)
        actions, grammar = deepcopy(
            parsed(text[: found.start(2)] + STAND_IN + text[found.end(2) :], rule_name=rule_name)
        )
        for rules in grammar._rules.values():
            for symbol in (symbol for rule in rules for symbol in rule.rhs):
                if isinstance(symbol, textgen.TerminalSymbol):
                    symbol.symbol = symbol.symbol.replace(STAND_IN, found[2])
        return actions, grammar

    return parse_and_convert


def _copies(parse: Callable[..., Any]) -> Callable[..., Any]:
    parsed = lru_cache(4_096)(lambda text, rule_name: parse(text, rule_name=rule_name))

    def parse_and_convert(text: str, rule_name: str, trace: bool = False) -> Any:
        return deepcopy(parsed(text, rule_name))  # a derivation writes into its symbols

    return parse_and_convert


def _copied_context(context: dict[str, Any]) -> dict[str, Any]:
    """A context of its own. What its variables stand for is not copied with it, since no derivation changes that."""
    return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}


def _derived(textgen: Any) -> Callable[..., str]:
    derive = textgen.ContextSensitiveGrammar.derive
    known: dict[Any, str] = {}

    def remembered(grammar: Any, start: str, context: Any) -> str:
        if "#" in start:  # a text of the game, which may depend on anything
            return derive(grammar, start, context)
        named = frozenset(NAMED.findall(start))
        facts = tuple(frozenset(facts) for sign, facts in context["state"]._facts.items() if sign.name in named)
        names = tuple((name, info.name) for name, info in context["variables"].items())
        key = (start, names, tuple(context["mapping"].items()), facts, id(context["entity_infos"]))
        if key not in known:
            if len(known) >= 100_000:
                known.clear()
            known[key] = derive(grammar, start, context)
        return known[key]

    return remembered
