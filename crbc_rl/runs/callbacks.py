"""Callbacks: who is told how a run goes."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]


class Callback:
    """Told how a run goes: override either."""

    def phase(self, name: str) -> None:
        """A phase of an update begins: "rollout", "credit", "train" or "eval"."""

    def record(self, record: Record) -> None:
        """An update has ended with these figures."""
