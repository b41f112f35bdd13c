"""What may reach TextWorld. It runs the Python in `{...}` of a grammar, and its planner reads PDDL in C.

So its grammar and domain must be, character for character, among those that ALFWorld and this package wrote. Only the
task's sentence may differ, and it consists of plain words: in a grammar, braces, brackets, quotes, `#`, `;`, `|`, `<`,
`>`, `/`, the backslash and line breaks have a meaning. The problem must hold the five sections of every published one
and nothing else. The exact engine runs nothing and plays other games too.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from crbc_envs.alfworld.engine.dialect import split_task
from crbc_envs.alfworld.engine.game import GameFile
from crbc_envs.alfworld.engine.pddl import parse_lists
from crbc_envs.alfworld.engine.problem import Problem
from crbc_envs.errors import DataError

GRAMMARS = {
    "063d42f07581dbed3b4f655bae25e0af94fd0e062f9eae0f6f63037ecd5177e6": "the games of release 2.1.2",
    "93119b93cd2872a8057ed9a13f40891d21ee1be4d95a6dc2f8fe36b55630e652": "alfred.twl2 of alfworld 0.4.2",
    "f1c3ceffd69e615da58f23a499185f2dc3449da391226bbeda8184064cdaaade": "alfred.twl2 of alfworld 0.3.5",
    "d8e994a45b53270a4e19c3623173ea4fdd0479152f609cfefd39e4a907f1d0ef": "generated games, move",
    "f54f3fb6bf1e37319f6c29718f21f0eaadb0a20e1226cd94e5b4a2f9f12f8eee": "generated games, put",
}
"""SHA-256 of whole grammars without the task's sentence, and where they are from."""

DOMAINS = {
    "0af55e7f92d12b09d28515aa730e4d03fddd17228ef1fd7b18a3ee8ba49b27b9": "the games of release 2.1.2",
    "f1473041ed01da514de1f87adfd7ef0804862361f83ccf63c75e43633b0eb280": "alfred.pddl of alfworld 0.4.2",
    "e64e8c0002648c403e05adedc25be5ea8b9863924f32cc7611051bed1f386e46": "alfred.pddl of alfworld 0.3.5",
    "7e545a659a9f7734b4c836e65dbe42b7ab643b229eebaed9a00442ba36e90ad8": "generated games, move",
    "f6671dba96c9704ab97af7cd4362558467e6f79c4c174c72c5abdec13c9a49db": "generated games, put",
}
"""SHA-256 of whole domains, and where they are from."""

TYPES = {"agent", "object", "receptacle", "location", "otype", "rtype"}

_WORDS = re.compile(r"[A-Za-z0-9 .,-]*")
_PDDL = re.compile(r"[\w\s():?=-]*", re.ASCII)


def check_known(file: GameFile) -> None:
    """Raise a `DataError` that names the game, unless TextWorld may read it."""
    try:
        task, grammar = split_task(file.grammar)
        if sha256(grammar.encode("utf-8", "surrogatepass")).hexdigest() not in GRAMMARS:
            raise DataError("TextWorld would run code in its grammar, which is none of the known ones")
        if not _WORDS.fullmatch(task):
            raise DataError("TextWorld would run code in its task, which has more than letters, digits and . , -")
        if sha256(file.domain.encode("utf-8", "surrogatepass")).hexdigest() not in DOMAINS:
            raise DataError("its domain is none of the known ones")
        Problem(file.problem)  # checks facts, goal and sizes
        if not _PDDL.fullmatch(file.problem) or not _is_problem(file.problem):
            raise DataError("its problem has more than names, facts and a goal")
    except ValueError as error:
        raise DataError(
            f'{file.name}: refused with engine="textworld", play it with engine="exact": {error}'
        ) from error


def _is_problem(text: str) -> bool:
    """Whether the text is one list with the sections of a published problem, whose names have known types."""
    match parse_lists(f"({text.strip()})"):
        case [["define", ["problem", str()], [":domain", "alfred"], [":objects", *names], [":init", *facts], goal]]:
            return _are_names(names) and all(map(_are_words, facts)) and goal[:1] == [":goal"] and len(goal) == 2
    return False


def _are_words(form: Any) -> bool:
    return isinstance(form, list) and all(isinstance(name, str) for name in form)


def _are_names(names: list[Any]) -> bool:
    """Whether the list is `NAME - TYPE`, over and over."""
    return _are_words(names) and set(names[1::3]) == {"-"} and set(names[2::3]) <= TYPES and len(names) % 3 == 0
