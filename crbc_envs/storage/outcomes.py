"""Outcomes of conformance runs: an engine of this suite and the original, side by side. Kept as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from crbc_envs.errors import DataError
from crbc_envs.storage.files import parse_json


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one game. `difference` is empty if there was none; `verbs` counts the commands by verb. `engine`
    is a hash of the engine's sources, where a later run may take the result over."""

    game: str
    family: str
    seed: int
    steps: int
    won: bool
    difference: str
    verbs: dict[str, int]
    engine: str = ""


class Conformance(NamedTuple):
    """How an environment is compared with the original.

    `play(count, steps, seed, **kwargs)` makes the environment with `kwargs` and plays its first `count` tasks, `steps`
    steps each, in both engines. It raises `RequirementError` where the original is not installed.
    """

    original: str
    compared: tuple[str, ...]
    """What is compared at every step."""
    play: Callable[..., Iterator[Outcome]]
    tasks: int
    """The usual number of tasks."""


def line_of(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome)) + "\n"


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes of a file, without a last line that was cut short. Raises `DataError`."""
    outcomes = []
    for n, line in enumerate(path.read_bytes().split(b"\n")[:-1]):  # text after the last line feed is incomplete
        try:
            outcomes.append(Outcome(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: line {n + 1} is not an outcome of a conformance run; delete the file") from error
    return outcomes
