"""Console output of a run: one line per update, and a progress bar on a terminal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from crbc_rl.runs.callbacks import Callback, Record

_PHASES = ("rollout", "credit", "train", "eval")


class TrainProgress(Callback):
    """Prints every finished update. Use it as a context manager around the run."""

    def __init__(self, console: Console, updates: int, done: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("start", total=updates, completed=done)

    def __enter__(self) -> TrainProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def phase(self, name: str) -> None:
        self._progress.update(self._task, description=f"{name:8}")

    def record(self, record: Record) -> None:
        self._progress.update(self._task, completed=record["update"])
        self._console.print(update_line(record), highlight=False, soft_wrap=True)


def update_line(record: Record) -> str:
    """One update in one line; the seconds of its phases come last."""
    parts = [f"[bold]update {record['update']:3d}[/]"]
    if "success" in record:
        parts += [
            f"success [bold]{record['success']:5.1%}[/]",
            f"reward {record['reward']:5.2f}",
            f"length {record['length']:4.1f}",
            f"invalid {record['invalid']:.1%}",
            f"clip {record['clip_share']:.1%}",
        ]
    if "kl" in record:
        parts.append(f"kl {record['kl']:.4f}")
    for split in ("validation", "test"):
        if f"{split}/success" in record:
            parts.append(f"[cyan]{split} {record[f'{split}/success']:.1%}[/]")
    seconds = [f"{phase} {record[f'seconds/{phase}']:.2f}" for phase in _PHASES if f"seconds/{phase}" in record]
    return "  ".join(parts) + "  [dim]" + " ".join(seconds) + " s[/]"


@contextmanager
def stop_on_interrupt(stop: Callable[[], None], console: Console) -> Iterator[None]:
    """On the first Ctrl-C, finish and save the current update; on the second, exit at once."""

    def interrupted(signum: int, frame: Any) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print("[yellow]stopping after this update; Ctrl-C again to stop now[/]")

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
