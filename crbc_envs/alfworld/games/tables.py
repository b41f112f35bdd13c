"""Tables for generated households, as `household.toml` describes them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

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
