"""Workers that are processes of this machine.

They are forked from a server that has imported what every worker needs and nothing else, so a new one
takes some ten milliseconds and inherits no thread, lock or file of a training process. Requests and
answers are pickled by `multiprocessing`: they pass between our own processes and no other.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import struct
import threading
import time
import traceback
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from crbc_envs.vector.workers.worker import CLOSE_PATIENCE, Host, Request, WorkerLost

_NAME = "crbc worker"
_REAPING = 5.0
"""Seconds a killed process has to be gone."""


class ProcessWorker:
    """A process that plays members. No call on it takes much longer than `timeout` seconds."""

    starting = 0.0

    def __init__(self, timeout: float) -> None:
        ours, theirs = socket.socketpair()
        limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
        for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            # Else a process that is stopped in the middle of a message would stop us as well.
            ours.setsockopt(socket.SOL_SOCKET, direction, limit)
        self.timeout = timeout
        self.connection = Connection(ours.detach())
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", __name__])
        with Connection(theirs.detach()) as end:
            self.process = context.Process(target=work, args=(end,), daemon=True, name=_NAME)
            try:
                self.process.start()
            except (OSError, EOFError) as error:
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
            number, result = self.connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerLost(self._reason(error)) from error
        if number is None:
            raise WorkerLost(result.strip().rpartition("\n")[-1], result)
        return number, result

    def _reason(self, error: Exception) -> str:
        if isinstance(error, BlockingIOError):
            return f"stuck in the middle of a message for {self.timeout:g} s"
        self.process.join(_REAPING)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"killed by signal {-code} ({signal.strsignal(-code)})"
        return f"ended with exit status {code}"

    def close(self) -> None:
        self.connection.close()

    def kill(self, patience: float = 0.0) -> None:
        self.connection.close()
        if patience:
            self.process.join(patience)
        self.process.kill()
        self.process.join(_REAPING)
        if self.process.exitcode is not None:
            self.process.close()


@atexit.register
def _end_all() -> None:
    """Before `multiprocessing` waits for them to end, which stopped ones never do."""
    for process in multiprocessing.active_children():
        if process.name == _NAME:
            process.kill()


def work(connection: Connection) -> None:
    """What a worker process does until its parent closes the connection, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer
    threading.Thread(target=_follow_parent, daemon=True).start()
    with closing(Host()) as host:
        while True:
            with LastWords(connection):
                request = _next(connection)
                if request is None:
                    return
                connection.send(host.answer(*request))


def _next(connection: Connection) -> Request | None:
    try:
        request: Request = connection.recv()
    except (EOFError, OSError):
        return None
    return request


def _follow_parent() -> None:
    """A hanging environment must not outlive the process it hangs for."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(CLOSE_PATIENCE)
    os._exit(1)


class LastWords:
    """Tells the parent what was raised, and ends the process: after an error an environment is not to be relied on."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            with suppress(OSError):
                self.connection.send((None, "".join(traceback.format_exception(error))))
            raise SystemExit(1) from error
