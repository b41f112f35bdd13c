"""Files of JSON lines, one record per update, which survive crashes and damage."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import replacing
from crbc_rl.training.files import WriteErrors

log = logging.getLogger(__name__)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file, in order; none where it is missing.

    A last line that a crash cut short is left out. So are damaged lines, which a warning counts.
    """
    if not path.is_file():
        return []
    *lines, rest = path.read_bytes().split(b"\n")
    records = [_record(line) for line in lines]
    records += [_record(rest)] if rest else []
    damaged = [number for number, record in enumerate(records[: len(lines)], 1) if record is None]
    if damaged:
        log.warning("%s: %d damaged lines are left out, the first is line %d", path, len(damaged), damaged[0])
    return [record for record in records if record is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("update"), int) else None


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append a record and wait until it has reached the disk. Raises `OSError` naming the file."""
    with WriteErrors(path), path.open("ab") as file:
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())


def cut_lines(path: Path, upto: int) -> list[dict[str, Any]]:
    """Drop the records behind update `upto`, and what is no record. Returns what is kept."""
    kept = [record for record in read_lines(path) if record["update"] <= upto]
    content = b"".join(map(_line, kept))
    if path.is_file() and path.read_bytes() != content:
        replace_file(path, content)
    return kept


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all. Raises `OSError` naming it, and `DataError` if it is a link."""
    with WriteErrors(path), replacing(path) as file:
        file.write(content)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
