"""The metrics of a run as files: appended by the learner, read by everything else."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import append_line
from crbc_rl.runs.lines import Record, cut_lines, read_lines, replace_last
from crbc_rl.runs.metric_table import scalars_of
from crbc_rl.runs.metric_writers import Board, TensorBoard

log = logging.getLogger(__name__)


def read_metrics(run: Path) -> list[Record]:
    """The records of a run, in order. Figures that are no finite numbers are left out."""
    by_update = {record["update"]: record for record in read_lines(run / "metrics.jsonl")}
    return [
        {name: value for name, value in by_update[update].items() if name == "update" or is_metric(name, value)}
        for update in sorted(by_update)
    ]


def is_metric(key: str, value: Any) -> bool:
    """Whether a value can be that of a metric: a finite number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < math.inf and key.isprintable()


def evaluated(records: Iterable[Record], split: str) -> list[Record]:
    """The records with an evaluation on `split`: success, its interval, and the number of tasks."""
    needed = {f"{split}/{name}" for name in ("success", "low", "high", "episodes")}
    return [record for record in records if needed <= record.keys()]


class Metrics:
    """Appends records to RUN/metrics.jsonl, RUN/tensorboard and the other `boards`.

    A run that resumes after update `upto` first drops the later records, so that each update is written exactly once.
    A warning names records that are missing.
    """

    def __init__(self, run: Path, upto: int, boards: Iterable[Board] = ()) -> None:
        self._path = run / "metrics.jsonl"
        kept = cut_lines(self._path, upto)
        first = next((update for update in range(upto + 1) if update not in kept), None)
        if first is not None:
            missing = upto + 1 - len(kept)
            log.warning("%s: %d of the %d records are missing, the first is %d", self._path, missing, upto + 1, first)
        self._first, self._folder = upto + 1, run / "tensorboard"
        self._others = tuple(boards)
        self._tensorboard: Board | None = None  # made with the first record: a failed start leaves none

    def write(self, record: dict[str, Any]) -> None:
        """Append one record, or put it in the place of the last; `update` is its step, numbers become scalars of the
        boards. Raises `OSError` naming the file that cannot be written."""
        if record["update"] < self._first:
            replace_last(self._path, record)
        else:
            append_line(self._path, record)
        if self._tensorboard is None:
            self._tensorboard = TensorBoard(self._folder, min(self._first, record["update"]))
        for board in (self._tensorboard, *self._others):
            board.write(record["update"], scalars_of(record))

    def close(self) -> None:
        for board in (self._tensorboard, *self._others):
            if board is not None:
                board.close()
