"""The groups of a run: one per update, for the report."""

from __future__ import annotations

import logging
from pathlib import Path

from anchors import RolloutGroup
from crbc_rl.runs.lines import read_lines

log = logging.getLogger(__name__)


def read_groups(path: Path) -> dict[int, RolloutGroup]:
    """The groups of a file by update. Damaged ones are left out, and a warning counts them."""
    groups: dict[int, RolloutGroup] = {}
    damaged = []
    for record in read_lines(path):
        try:
            groups[record["update"]] = RolloutGroup.from_dict(record["group"])
        except (KeyError, TypeError, ValueError) as error:
            damaged.append(f"the group of update {record['update']} is damaged and left out: {error}")
    if damaged:
        log.warning("%s: %s%s", path, damaged[0], f"; and {len(damaged) - 1} more" if damaged[1:] else "")
    return groups
