"""The groups of a run: one per update, for the report."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anchors import GroupError, RolloutGroup
from crbc_rl.runs.lines import read_line, read_lines

log = logging.getLogger(__name__)


class Groups(Mapping[int, RolloutGroup]):
    """The sound groups of a file by update. A group is read when it is asked for: all of them may not fit memory.

    A warning counts damaged ones.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[int, int] = {}
        damaged, first = 0, ""
        for place, record in read_lines(path):
            try:
                _group(record)
                self._places[record["update"]] = place
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                damaged += 1
                first = first or f"the group of update {record['update']} is damaged and left out: {error}"
        if damaged:
            log.warning("%s: %s%s", path, first, f"; and {damaged - 1} more" if damaged > 1 else "")

    def __getitem__(self, update: int) -> RolloutGroup:
        return _group(read_line(self._path, self._places[update]))

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _group(record: dict[str, Any]) -> RolloutGroup:
    """The group of a record. Raises `KeyError`, `TypeError`, `ValueError` or `OverflowError` where it is damaged."""
    group = RolloutGroup.from_dict(record["group"])
    if not isinstance(group.task, str):
        raise GroupError("its task is no text")
    for rollout in group.rollouts:
        if not 0 <= rollout.score <= 1:
            raise GroupError(f"a score is {rollout.score}")
        for step in rollout.steps:
            number = isinstance(step.reward, int | float) and not isinstance(step.reward, bool)
            if not isinstance(step.label, str) or not number or not math.isfinite(step.reward):
                raise GroupError("the label of a step is no text, or its reward no number")
    return group
