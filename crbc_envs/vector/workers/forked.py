"""The other side of the fork server: it is started here, and forks worker processes for this process."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from crbc_envs.vector.workers.fork_server import NUMBER

_START_TIMEOUT = 60.0
"""Seconds until a worker must have been forked. The first one waits for the imports of the server."""


class ForkServer:
    """A running fork server. It ends when this process does."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        folders = [folder or os.getcwd() for folder in sys.path]
        code = f"import sys; sys.path[:] = {folders!r}; from crbc_envs.vector.workers.fork_server import serve; "
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"{code}serve({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # the server kills this group, and Ctrl-C does not reach it
            )
            if sys.platform == "linux":
                import fcntl  # not on Windows

                # The kernel sends SIGCONT at every request and at the end of the socket: a stopped server wakes up.
                fcntl.fcntl(theirs, fcntl.F_SETOWN, self.process.pid)
                fcntl.fcntl(theirs, fcntl.F_SETSIG, signal.SIGCONT)
                fcntl.fcntl(theirs, fcntl.F_SETFL, fcntl.fcntl(theirs, fcntl.F_GETFL) | os.O_ASYNC)

    def abandon(self) -> None:
        """Forget the server in a process that inherited it by a fork. It stays that of the parent."""
        self.control.close()
        self.process.returncode = 0  # `Popen` would otherwise wait for a process that is no child


class ForkedProcess:
    """A worker process. It is no child of this process, so its end is read from a pipe that the server writes to.

    A process that was forked from this one may have it too, but cannot do anything to it. Raises `OSError` if it
    cannot be started.
    """

    def __init__(self, fds: list[int]) -> None:
        self.exitcode: int | None = None
        self._owner = os.getpid()
        self._report, report = os.pipe()
        try:
            _request([fds[0], report, *fds[1:]])
        except OSError:
            self.close()
            raise
        finally:
            os.close(report)
        number = self._read(_START_TIMEOUT)
        if number is None or number < 0:
            self.close()
            raise OSError("its fork server " + ("does not answer" if number is None else "could not fork it"))
        self.pid = number

    def join(self, timeout: float) -> None:
        """Wait for the process to end. `exitcode` is below zero if a signal ended it."""
        if self.exitcode is None and self._report >= 0 and os.getpid() == self._owner:
            self.exitcode = self._read(timeout)

    def kill(self) -> None:
        """Kill the process, unless it has ended or belongs to a process that this one was forked from."""
        self.join(0.0)
        if self.exitcode is None and os.getpid() == self._owner:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        if self._report >= 0:
            os.close(self._report)
            self._report = -1

    def _read(self, timeout: float) -> int | None:
        """The next number from the server. None if it says nothing in time. A server that died killed its workers."""
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        if not poll.poll(1000 * timeout):
            return None
        message = os.read(self._report, NUMBER.size)
        return NUMBER.unpack(message)[0] if message else -signal.SIGKILL


_lock = threading.Lock()
_server: ForkServer | None = None


def _request(fds: list[int]) -> None:
    """Ask the server for a worker. It is started if there is none, or if it has died."""
    global _server
    with _lock:
        if _server is None or _server.process.poll() is not None:
            if _server is not None:
                _server.control.close()
            _server = ForkServer()
        socket.send_fds(_server.control, [b"w"], fds)


def _after_fork() -> None:
    """A forked child that lives on must not keep its parent's workers alive, and it may start its own."""
    global _lock, _server
    _lock = threading.Lock()
    if _server is not None:
        _server.abandon()
        _server = None


os.register_at_fork(after_in_child=_after_fork)
