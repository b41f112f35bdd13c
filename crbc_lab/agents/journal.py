"""Files of JSON lines that only grow, and survive a kill at any instant."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import WriteErrors, append_line, parse_json, refuse_link

log = logging.getLogger(__name__)


class Journal:
    """One record a line. `read` first, which drops a last line that a kill has cut; then `append`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[dict[str, Any]]:
        """The records in order. A damaged line is left out, and a warning counts them.

        A last line without its end is cut off, so that the next record begins a line of its own. Raises `DataError`
        for a link.
        """
        if not refuse_link(self.path).exists():
            return
        whole = damaged = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                record = _record(line)
                if record is None:
                    damaged += 1
                else:
                    yield record
            size = file.seek(0, 2)
        if damaged:
            log.warning("%s: %d damaged lines are left out", self.path, damaged)
        if whole < size:
            with WriteErrors(self.path), self.path.open("r+b") as file:
                file.truncate(whole)

    def append(self, record: dict[str, Any]) -> None:
        """Append a record and wait until it has reached the disk. Raises `OSError` naming the file."""
        append_line(self.path, record)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
