"""What each held-out task came to in every evaluation of a run: RUN/outcomes.jsonl, one line an evaluation.

A study pairs methods by task with it, and keeps the tasks of one room or product together.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_rl.runs.lines import read_lines

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

log = logging.getLogger(__name__)

OUTCOMES = "outcomes.jsonl"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """An evaluation after `update`: arrays and lists with one entry per rollout, sorted by task.

    `score` is the task's own, `reward` the return, `kind` the kind of task ("" without kinds), `content` the digest of
    what is played, so equal tasks have equal ones, `cluster` names what several tasks have in common, such as a room.
    """

    update: int
    split: str
    task: Ints
    success: Ints
    score: Floats
    reward: Floats
    kind: tuple[str, ...]
    content: tuple[str, ...]
    cluster: tuple[str, ...]


def read_outcomes(run: Path, split: str) -> dict[int, Outcomes]:
    """The evaluations of a run on `split` by update. Damaged lines are left out, and a warning tells of the first."""
    by_update: dict[int, Outcomes] = {}
    for record in read_lines(run / OUTCOMES):
        if record.get("split") != split:
            continue
        try:
            by_update[record["update"]] = _outcomes(record)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("%s: update %d is damaged and left out: %s", run / OUTCOMES, record["update"], error)
    return by_update


def _outcomes(record: Mapping[str, Any]) -> Outcomes:
    """Raises `KeyError`, `TypeError` or `ValueError` where the record is damaged."""
    success = np.array(record["success"], dtype=np.int64)
    numbers = {name: np.array(record[name], dtype=float) for name in ("task", "score", "reward")}
    texts = {name: tuple(record[name]) for name in ("kind", "content", "cluster")}
    if {*map(len, numbers.values()), *map(len, texts.values())} != {len(success)}:
        raise ValueError("its columns differ in length")
    return Outcomes(
        update=record["update"],
        split=record["split"],
        task=numbers["task"].astype(np.int64),
        success=success,
        score=numbers["score"],
        reward=numbers["reward"],
        **texts,
    )
