"""Measures the memory that a function needs, in a child process that does nothing else."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def memory_of(work: Callable[[], Any]) -> float:
    """The private memory, in bytes, that `work` adds to a forked process while its result is kept. Linux only."""
    gc.collect()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        before = _private_bytes()
        kept = work()
        os.write(write, f"{_private_bytes() - before}".encode())
        del kept
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        added = pipe.read()
    os.waitpid(child, 0)
    return float(added)


def _private_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
