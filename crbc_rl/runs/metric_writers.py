"""Metric writers. TensorBoard's is always on, and writes at once: a full disk is an error here, not in a thread."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from crbc_envs.storage.files import WriteErrors


class Board(Protocol):
    """Shows the metrics of a run as curves."""

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Add the scalars of an update, by TensorBoard's tags."""

    def close(self) -> None:
        """Finish what is not written yet."""


class TensorBoard(Board):
    """Appends scalars to an event file of its own in `folder`. Readers drop those of other files from `first` on."""

    def __init__(self, folder: Path, first: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = Event
        host = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())[:64]
        name = f"events.out.tfevents.{int(time.time())}.{host}.{os.getpid()}.{first}.{token_hex(4)}"
        self.path = folder / name
        with WriteErrors(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb")
        self._records = RecordWriter(self._file)
        self._append(file_version="brain.Event:2")
        self._append(step=first, session_log=SessionLog(status=SessionLog.START))

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Append scalars by tag. Raises `OSError` naming the file."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=float(value)) for tag, value in scalars.items()]
        self._append(step=update, summary=Summary(value=values))

    def _append(self, **content: Any) -> None:
        with WriteErrors(self.path):
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
            self._file.flush()

    def close(self) -> None:
        with WriteErrors(self.path):
            self._file.close()
