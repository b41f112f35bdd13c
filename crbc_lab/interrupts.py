"""Ctrl-C, SIGTERM and a terminal that closes: the first saves and ends a run, the second ends it at once, under
torchrun after ten seconds. What it has started ends with it."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from types import FrameType, TracebackType

HANGUP: tuple[int, ...] = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # not on Windows
"""What a process gets when its terminal closes."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

CHILD = "CRBC_CELL"
"""The environment variable of a run that another process started, and whose standard input that process holds open."""

PATIENT = "--shutdown-timeout=3600"
"""torchrun's option for the seconds that a stopped rank has to end its update and to save."""


def hurried() -> bool:
    """Whether torchrun would kill this process 30 seconds after SIGTERM: its command line and the environment tell no
    other time. False where neither can be read."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in os.environ:
        return False
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:  # no Linux
        return False
    return not re.search(rb"--shutdown[-_]timeout", words)


def stop_with_parent() -> None:
    """Have this process stop, as on SIGTERM, when the process has gone that started it with `CHILD`."""
    if os.environ.pop(CHILD, ""):
        threading.Thread(target=_wait_for_parent, name="parent", daemon=True).start()


def _wait_for_parent() -> None:
    while sys.stdin.buffer.raw.read(1):  # type: ignore[union-attr]  # a `BufferedReader` at run time
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def worker_pool(jobs: int) -> ProcessPoolExecutor:
    """So many worker processes, which end at once when this one has, however it ended."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent)


def end_with_parent() -> None:
    """Have this worker process end at once when the one that started it has."""
    threading.Thread(target=_join_parent, name="parent", daemon=True).start()


def _join_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


class Interrupts:
    """Context manager of a command. While `stop` is set, the first signal calls it. Any other raises
    `KeyboardInterrupt`; the process cleans up, and one more signal kills it.

    A signal may come in the middle of a print, so `stop` must not print.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], None] | None = None
        self._told = -math.inf

    def __enter__(self) -> Interrupts:
        heeded = [number for number in HANGUP if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores it
        self._before = {number: signal.signal(number, self._received) for number in (*SIGNALS, *heeded)}
        self._terminals = [descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not KeyboardInterrupt:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if number in HANGUP:
            for descriptor in self._terminals:  # nobody reads there any more, and to write would fail
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            if self.stop is None and self._told > -math.inf:
                return  # the shell and the system both tell it
        if self.stop is not None:
            (stop, self.stop), self._told = (self.stop, None), time.monotonic()
            stop()
            return
        if "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() < self._told + 10.0:
            return  # torchrun repeats a signal that a scheduler has sent to all processes
        for other in self._before:
            signal.signal(other, signal.SIG_IGN if other in HANGUP else signal.SIG_DFL)
        raise KeyboardInterrupt
