"""Files of JSON lines that only grow, and survive a kill at any instant."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import WriteErrors, parse_json, refuse_link

log = logging.getLogger(__name__)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The records of a file, in order; none where it is missing.

    A last line that a kill has cut is removed, so that the next record begins a line of its own. Any other damaged
    line is left out with a warning. Raises `DataError` for a link.
    """
    if not refuse_link(path).exists():
        return []
    *lines, cut = path.read_bytes().split(b"\n")
    if cut:
        with WriteErrors(path):
            os.truncate(path, path.stat().st_size - len(cut))
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(dict(parse_json(line)))
        except (TypeError, ValueError):
            log.warning("%s: line %d is damaged and left out", path, number)
    return records
