"""Callbacks of the learner."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]


class Callback:
    """Receives the progress of a run; override any of the methods."""

    def phase(self, name: str) -> None:
        """A phase of an update begins: "rollout", "credit", "train" or "eval"."""

    def episodes(self, done: int, total: int) -> None:
        """`done` of the `total` episodes have ended that this rank plays in the current evaluation."""

    def record(self, record: Record) -> None:
        """An update has ended with these metrics."""
