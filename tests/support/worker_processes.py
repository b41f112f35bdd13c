"""Worker processes under test: which run, and what happens to them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crbc_envs.vector.workers import forked

SOON = 0.5
"""The timeout of tests in which a worker hangs."""


@dataclass(frozen=True)
class Process:
    """A process that is not a zombie, as the kernel tells of it."""

    pid: int
    parent: int
    group: int
    state: str = field(compare=False)  # it changes from moment to moment


def processes() -> Iterator[Process]:
    """All processes of this machine that run or are stopped."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if state not in "ZX":
            yield Process(int(folder.name), int(parent), int(group), state)


def alive(*pids: int) -> bool:
    """Whether any of these processes runs or is stopped."""
    return any(process.pid in pids for process in processes())


def server_pid():
    """The process id of the fork server, if there is one."""
    return None if forked._server is None else forked._server.process.pid


def workers():
    """The worker processes of this test, in the order they were started."""
    server = server_pid()
    return sorted((p for p in processes() if p.parent == server), key=lambda process: process.pid)


def stop(pid):
    """Stop a process, and wait until it is: a writer that finds room first would finish its message."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while not any(p.pid == pid and p.state == "T" for p in processes()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def inflict(fault, faults):
    """One fault: on a worker from outside, or in an environment at its next step."""
    if fault == "SIGKILL":
        os.kill(workers()[0].pid, signal.SIGKILL)
    elif fault == "SIGSTOP":
        stop(workers()[0].pid)
    else:
        (faults / fault).touch()
