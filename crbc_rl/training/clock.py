"""The phases of an update: their seconds, which add up to the whole, and who is told of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Record = dict[str, Any]
OTHER = "other"
"""The phase outside of all phases."""


class Clock:
    """Divides all time among phases, by the seconds of `now`. While a phase is open inside another, the outer one
    pauses."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._open: list[str] = []
        self.spent: dict[str, float] = {}
        """Seconds by phase since they were last taken."""
        self._begun = self._since = now()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside as `name`."""
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """The seconds of each phase since this was last called, and "update", all of them."""
        self._book()
        taken = {**self.spent, "update": self._since - self._begun}
        self.spent, self._begun = {}, self._since
        return taken

    def _book(self) -> None:
        """Add the time since the last change of phase to the innermost open one."""
        name, now = self._open[-1] if self._open else OTHER, self._now()
        self.spent[name] = self.spent.get(name, 0.0) + now - self._since
        self._since = now


def finished(device: torch.device) -> Callable[[], float]:
    """Seconds by the wall clock, read when `device` has done all that it was given. A GPU works behind the program's
    back, and what one phase asked for would count for the next."""
    if device.type != "cuda":
        return time.perf_counter

    import torch  # who looks at a run waits for no torch

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


class Callback:
    """Receives the progress of a run; override any of the methods."""

    def phase(self, name: str) -> None:
        """The phase `name` of an update begins: "rollout", "credit", "train", "validation" or "test"."""

    def episodes(self, done: int, total: int) -> None:
        """`done` of the `total` episodes have ended that this rank plays in the current evaluation."""

    def record(self, record: Record) -> None:
        """An update has ended; `record` has its number, `update`, and its metrics, as in metrics.jsonl."""
