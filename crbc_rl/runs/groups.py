"""The groups of a run: one per update, for the report."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from anchors import RolloutGroup
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
                RolloutGroup.from_dict(record["group"])
                self._places[record["update"]] = place
            except (KeyError, TypeError, ValueError) as error:
                damaged += 1
                first = first or f"the group of update {record['update']} is damaged and left out: {error}"
        if damaged:
            log.warning("%s: %s%s", path, first, f"; and {damaged - 1} more" if damaged > 1 else "")

    def __getitem__(self, update: int) -> RolloutGroup:
        return RolloutGroup.from_dict(read_line(self._path, self._places[update])["group"])

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
