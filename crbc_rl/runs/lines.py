"""Files of JSON lines, one record per update, which survive crashes and damage."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import WriteErrors, parse_json, replacing

log = logging.getLogger(__name__)

Record = dict[str, Any]

OUTCOMES = "outcomes.jsonl"
"""In a run's folder: what each held-out task came to, one line an evaluation, its columns sorted by task."""
LAST = 1 << 16
"""Bytes at the end of a file in which its last record is looked for."""


def read_lines(path: Path) -> Iterator[Record]:
    """The records of a file, as they stand there; none where the file is missing.

    A last line that a crash cut short is left out. So are damaged lines, which a warning counts at the end.
    """
    if not path.is_file():
        return
    damaged, first = 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if (record := _record(line)) is not None:
                yield record
            elif line.endswith(b"\n"):
                damaged, first = damaged + 1, first or number
    if damaged:
        log.warning("%s: %d damaged lines are left out, the first is line %d", path, damaged, first)


def last_record(path: Path) -> Record:
    """The last whole record of a file, of those with at most `LAST` bytes; empty where there is none."""
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST))
        lines = file.read(LAST).split(b"\n")[:-1]
    return next((record for line in reversed(lines) if (record := _record(line)) is not None), {})


def _record(line: bytes) -> Record | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    update = record.get("update") if isinstance(record, dict) else None
    return record if type(update) is int and update >= 0 else None


def cut_lines(path: Path, upto: int) -> set[int]:
    """Drop the records behind update `upto`, and what is no record. Returns the updates that are kept."""
    if not path.is_file():
        return set()
    kept: set[int] = set()
    size, last = 0, b"\n"
    for record, line in _up_to(path, upto):
        kept.add(record["update"])
        size, last = size + len(line), line
    if size != path.stat().st_size or not last.endswith(b"\n"):
        with WriteErrors(path), replacing(path) as file:
            file.writelines(line.rstrip(b"\n") + b"\n" for _, line in _up_to(path, upto))
    return kept


def replace_last(path: Path, record: Record) -> None:
    """Put `record` in the place of those from its update on, at once."""
    with WriteErrors(path), replacing(path) as file:
        file.writelines(line.rstrip(b"\n") + b"\n" for _, line in _up_to(path, record["update"] - 1))
        file.write(json.dumps(record).encode() + b"\n")


def _up_to(path: Path, upto: int) -> Iterator[tuple[Record, bytes]]:
    with path.open("rb") as file:
        for line in file:
            if (record := _record(line)) is not None and record["update"] <= upto:
                yield record, line
