"""The process that worker processes are forked from. It also ends them when the process that uses them is gone.

It runs no environment, so nothing can keep it from noticing. It sees the end of its user as the end of a socket that
only the user holds, whatever ended it. Workers then have `CLOSE_TIMEOUT` seconds to close their environments. After
that the kernel kills the group of processes: the server, its workers, and what these have started. On Linux the kernel
wakes the server if it was stopped, and kills the workers at once if the server dies.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import struct
import sys
import time
from contextlib import suppress

from crbc_envs.vector.workers.child import worker_main
from crbc_envs.vector.workers.worker import CLOSE_TIMEOUT

NUMBER = struct.Struct("q")
"""What the server tells of a worker: first its process id, or an error number below zero; then how it ended."""

_PR_SET_PDEATHSIG = 1


def serve(control_fd: int) -> None:
    """Fork a worker for each request, until the socket ends. The main function of the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the user of the workers handles Ctrl-C
    with socket.socket(fileno=control_fd) as control, selectors.DefaultSelector() as selector:
        server = _Server(control)
        selector.register(control, selectors.EVENT_READ)
        selector.register(server.wake, selectors.EVENT_READ)
        while server.has_user:
            for key, _ in selector.select():
                if key.fileobj is control:
                    server.fork()
                else:
                    server.reap()
        selector.unregister(control)
        deadline = time.monotonic() + CLOSE_TIMEOUT
        while server.reports and time.monotonic() < deadline:
            selector.select(deadline - time.monotonic())
            server.reap()
    os.killpg(0, signal.SIGKILL)


class _Server:
    """The workers that run: the pipe on which the end of each is reported, by process id."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.has_user = True
        self.reports: dict[int, int] = {}
        self.wake, self._waker = os.pipe()
        for end in (self.wake, self._waker):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the signal writes to the pipe
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def fork(self) -> None:
        """Fork one worker. The request is one byte, with its socket, its report pipe and its memory, if any."""
        request, fds, _, _ = socket.recv_fds(self.control, 1, 3)
        if not request:
            self.has_user = False
            return
        connection, report, *memory = fds
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _tell(report, -(error.errno or 1))
            os.close(report)
        else:
            if pid == 0:
                self._become_worker(server, connection, memory[0] if memory else None, report)
            self.reports[pid] = report
            _tell(report, pid)
        for fd in (connection, *memory):
            os.close(fd)

    def _become_worker(self, server: int, connection: int, memory: int | None, report: int) -> None:
        """Run a worker in the process just forked. Never returns."""
        status = 1
        try:
            end_with(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.close()
            for fd in (self.wake, self._waker, report, *self.reports.values()):
                os.close(fd)
            worker_main(connection, memory)
            status = 0
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)

    def reap(self) -> None:
        """Report how the workers ended that have ended."""
        with suppress(BlockingIOError):
            os.read(self.wake, 65536)
        while self.reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            report = self.reports.pop(pid)
            _tell(report, os.waitstatus_to_exitcode(status))
            os.close(report)


def end_with(server: int) -> None:
    """Have the kernel kill this process when its parent dies, even if it is stopped or never runs Python again.

    Linux only. Elsewhere a worker whose server was killed ends when its socket does.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it died before the call
            os._exit(1)


def _tell(report: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody wants to know
        os.write(report, NUMBER.pack(number))
