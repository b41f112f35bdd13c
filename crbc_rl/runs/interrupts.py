"""Ctrl-C and SIGTERM: a run ends with everything saved, and any command without a traceback."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

STATUS = 130
"""The exit status of an interrupted command, as shells have it."""


@contextmanager
def end_on_interrupt(console: Console) -> Iterator[None]:
    """Ctrl-C or SIGTERM ends the command at once: one line, and `SystemExit` with `STATUS`."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient third one would only bring a traceback
        console.print("[yellow]interrupted[/]; what was saved stays, and the same command goes on from there", soft_wrap=True)
        raise SystemExit(STATUS) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stop_on_interrupt(stop: Callable[[], None], console: Console) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM calls `stop`; the second raises `KeyboardInterrupt`."""

    def interrupted(signum: int, frame: Any) -> None:
        stop()
        for number in before:
            signal.signal(number, signal.default_int_handler)
        console.print("[yellow]stopping after this update; Ctrl-C again to stop now[/]")

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
