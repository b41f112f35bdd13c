"""Workers that are processes of this machine.

They are forked from a fork server that has imported only what every worker needs. A new worker therefore
starts in some ten milliseconds and inherits no thread, lock or file of the training process. Requests and
results are pickled by `multiprocessing`, which is safe here: they pass only between our own processes.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any

from crbc_envs.vector.workers.forked import ForkedProcess
from crbc_envs.vector.workers.main_script import MainScript
from crbc_envs.vector.workers.memory import new_memory, take
from crbc_envs.vector.workers.worker import Request, WorkerLost

_KILL_TIMEOUT = 5.0
"""Seconds to wait until a killed process is gone."""


class ProcessWorker:
    """A process that runs members. No method call takes much longer than `timeout` seconds."""

    startup_time = 0.0

    def __init__(self, timeout: float, script: MainScript | None = None) -> None:
        parent_end, child_end = socket.socketpair()
        limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
        for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            # Without a time limit, a process stopped in the middle of a message would block us as well.
            parent_end.setsockopt(socket.SOL_SOCKET, direction, limit)
        self.timeout = timeout
        self.memory = new_memory()
        self.connection = Connection(parent_end.detach())
        with child_end:
            fds = [child_end.fileno()] if self.memory is None else [child_end.fileno(), self.memory]
            try:
                self.process = ForkedProcess(fds)
                self.connection.send((os.getcwd(), dict(os.environ), script))
            except OSError as error:
                self._release()
                raise WorkerLost(f"it could not be started: {error}") from error

    def send(self, request: Request) -> None:
        try:
            self.connection.send(request)
        except OSError as error:
            raise WorkerLost(self._reason(error)) from error

    def receive(self, timeout: float) -> tuple[int, Any]:
        try:
            if not self.connection.poll(timeout):
                raise WorkerLost(f"no answer within {self.timeout:g} s")
            number, answer, sizes = self.connection.recv()
            result = answer if number is None else take(answer, sizes, self.memory)
        except (EOFError, OSError) as error:
            raise WorkerLost(self._reason(error)) from error
        if number is None:
            raise WorkerLost(result.strip().rpartition("\n")[-1], result)
        return number, result

    def _reason(self, error: Exception) -> str:
        if isinstance(error, BlockingIOError):
            return f"stuck in the middle of a message for {self.timeout:g} s"
        self.process.join(_KILL_TIMEOUT)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"killed by signal {-code} ({signal.strsignal(-code)})"
        return f"ended with exit status {code}"

    def close(self) -> None:
        self.connection.close()

    def kill(self, grace: float = 0.0) -> None:
        self.connection.close()
        if grace:
            self.process.join(grace)
        self.process.kill()
        self.process.join(_KILL_TIMEOUT)
        self.process.close()
        self._release()

    def _release(self) -> None:
        self.connection.close()
        if self.memory is not None:
            os.close(self.memory)
            self.memory = None
