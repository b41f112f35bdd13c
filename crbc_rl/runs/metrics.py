"""Metrics of a run: one JSON line per update, the same figures for TensorBoard."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The records of a run, in order; a line cut short by a crash ends the list."""
    path = run / "metrics.jsonl"
    records: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return records


class Metrics:
    """Appends records to RUN/metrics.jsonl and RUN/tensorboard.

    A run that resumes after update `upto` first drops the records behind it, so that no update is
    ever missing or told twice.
    """

    def __init__(self, run: Path, upto: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._path = run / "metrics.jsonl"
        kept = [record for record in read_metrics(run) if record["update"] <= upto]
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(record) + "\n" for record in kept))
        os.replace(temporary, self._path)
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=upto + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record; `update` is its step, numbers become TensorBoard scalars."""
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in record.items():
            if name != "update" and isinstance(value, int | float):
                self._board.add_scalar(name, value, record["update"])

    def close(self) -> None:
        self._board.close()
