"""Console output of a run: one line per update; progress bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from crbc_rl.runs.phases import blocks
from crbc_rl.training.clock import Callback, Record

SILENCE = 9.0
"""Seconds after which a line says what is going on, where there are no progress bars."""
STOPPING = "stopping after this update; Ctrl-C again to stop now"


class Bars:
    """Context manager: progress bars where `console` is a terminal; elsewhere the text of `say`, after every `SILENCE`
    seconds without a line."""

    def __init__(self, console: Console, say: Callable[[], str]) -> None:
        self._console, self._say = console, say
        self.bar = BarColumn(30)  # no wider: the terminal writes "^C" behind a bar, which must not wrap
        self._bars = Progress(
            TextColumn("{task.description:10}"),
            self.bar,
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.add, self.update, self.reset = self._bars.add_task, self._bars.update, self._bars.reset
        self._over = threading.Event()
        self._printed = self._begun = time.monotonic()
        self._watch = threading.Thread(target=self._tell, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._bars.start()
        if not self._console.is_terminal:
            self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._bars.stop()
        if self._watch.is_alive():
            self._watch.join()

    def print(self, line: str) -> None:
        self._printed = time.monotonic()
        self._console.print(line, highlight=False, soft_wrap=True)

    def spent(self, done: int, total: int) -> str:
        """The seconds since it began, and how many are left if the rest of `total` takes as long as what is done."""
        seconds = time.monotonic() - self._begun
        return f"{seconds:.0f} s" + (f", about {seconds / done * (total - done):.0f} s left" if done else "")

    def _tell(self) -> None:
        while not self._over.wait(max(0.1, self._printed + SILENCE - time.monotonic())):
            if time.monotonic() >= self._printed + SILENCE:
                self.print(self._say())


class TrainProgress(Bars, Callback):
    """Prints every finished update. Use it as a context manager around the run."""

    def __init__(self, console: Console, updates: int) -> None:
        super().__init__(console, self._state)
        self._updates = updates
        self._phase, self._begun, self._episodes = "start", time.monotonic(), (0, 0)
        self._first, self._done, self._at, self._since = 0, 0, 0, 0.0
        self._note = ""
        self._run = self.add("start", total=updates)
        self._part = self.add("episodes", visible=False)

    def begin(self, done: int) -> None:
        """Training begins after update `done`."""
        self._first, self._since = done, time.monotonic()
        self._show(done)

    def _show(self, done: int) -> None:
        self._done = self._at = done
        self.update(self._run, completed=done)

    def stopping(self) -> None:
        """The run stops after this update. Prints nothing through buffers, since a signal's handler calls it."""
        self._note = "stopping; Ctrl-C again: now"
        self.bar.bar_width = 12
        self.update(self._run, description=self._note)
        if not self._console.is_terminal and not self._console.quiet:
            os.write(2, f"{STOPPING}\n".encode())

    def phase(self, name: str) -> None:
        self._phase, self._begun, self._episodes = name, time.monotonic(), (0, 0)
        self._at = self._done + 1 if name == "rollout" else self._at
        self.update(self._run, description=self._note or name)
        self.reset(self._part, visible=False)

    def episodes(self, done: int, total: int) -> None:
        self._episodes = done, total
        self.update(self._part, completed=done, total=total, visible=True)

    def record(self, record: Record) -> None:
        done = record["update"]
        if done <= self._first:
            self.begin(done)  # what came before is no update
        self._show(done)
        width = self._console.width - 1 if self._console.is_terminal else WIDEST
        self.print(update_line(record, width, self._updates, self._left()))

    def _left(self) -> float | None:
        """Seconds that the other updates take, if they take as long as those of this start; None before the first."""
        made = self._done - self._first
        return (time.monotonic() - self._since) / made * (self._updates - self._done) if made else None

    def _state(self) -> str:
        done, total = self._episodes
        episodes = f"{done} of {total} episodes, " if total else ""
        place = f"update {self._at} of {self._updates}: " if self._phase != "start" else ""
        return f"  {place}{self._phase}, {episodes}{self.spent(done, total)}"


COLUMNS = (
    (1, "success", "success", "6.1%"),
    (7, "reward", "reward", "7.2f"),
    (8, "length", "length", "6.1f"),
    (6, "invalid", "invalid", "6.1%"),
    (10, "clip", "clip_share", "6.1%"),
    (9, "kl", "kl", "7.4f"),
    (2, "validation", "validation/success", "6.1%"),
    (3, "test", "test/success", "6.1%"),
)
"""Of a line: rank, name, metric and format. Those of a high rank are left out where the width has no room for all."""
WIDEST = 400
"""Characters of a line where nobody sees it end."""


def update_line(record: Record, width: int, updates: int, left: float | None = None) -> str:
    """One update of `updates` in one line of at most `width` characters, with the seconds that are `left`. Lines have
    the same columns, "-" where there is no figure. What does not fit is in metrics.jsonl alone."""
    parts = [(0, f"[bold]update {record['update']:{len(str(updates))}d} of {updates}[/]")]
    for rank, name, key, form in COLUMNS:
        figure = f"{record[key]:{form}}" if key in record else f"{'-':>{form.partition('.')[0]}}"
        parts.append((rank, f"{name} [cyan]{figure}[/]" if "/" in key else f"{name} {figure}"))
    seconds = blocks(record)
    parts.append((4, f"[dim]{sum(seconds.values()):6.1f} s[/]"))
    parts.append((5, f"[dim]{'-' if left is None else str(timedelta(seconds=round(left))):>8} left[/]"))
    parts.append((11, f"[dim]{', '.join(f'{phase} {value:.1f}' for phase, value in seconds.items())}[/]"))
    kept, room = set(), width
    for rank, shown in sorted(parts):
        room -= len(Text.from_markup(shown)) + 2 * (rank > 0)
        if room < 0:
            break
        kept.add(rank)
    return "  ".join(shown for rank, shown in parts if rank in kept)
