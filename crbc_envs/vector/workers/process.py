"""Workers that are processes of this machine.

They are forked from a fork server that has imported only what every worker needs. A new worker therefore
starts in some ten milliseconds and inherits no thread, lock or file of the training process. Requests and
results are pickled by `multiprocessing`, which is safe here: they pass only between our own processes.
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

from crbc_envs.vector.workers.worker import CLOSE_TIMEOUT, MemberServer, Request, WorkerLost

_NAME = "crbc worker"
_KILL_TIMEOUT = 5.0
"""Seconds to wait until a killed process is gone."""


class ProcessWorker:
    """A process that runs members. No method call takes much longer than `timeout` seconds."""

    startup_time = 0.0

    def __init__(self, timeout: float) -> None:
        parent_end, child_end = socket.socketpair()
        limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
        for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            # Without a time limit, a process stopped in the middle of a message would block us as well.
            parent_end.setsockopt(socket.SOL_SOCKET, direction, limit)
        self.timeout = timeout
        self.connection = Connection(parent_end.detach())
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", __name__])
        with Connection(child_end.detach()) as connection:
            self.process = context.Process(target=worker_main, args=(connection,), daemon=True, name=_NAME)
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
        if self.process.exitcode is not None:
            self.process.close()


@atexit.register
def _kill_all_workers() -> None:
    """Runs at exit, before `multiprocessing` joins its children. A stopped worker would never end by itself."""
    for process in multiprocessing.active_children():
        if process.name == _NAME:
            process.kill()


def worker_main(connection: Connection) -> None:
    """The main function of a worker process. Returns when the parent closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with closing(MemberServer()) as server:
        while True:
            with ReportErrors(connection):
                request = _next_request(connection)
                if request is None:
                    return
                connection.send(server.handle(*request))


def _next_request(connection: Connection) -> Request | None:
    """The next request; None once the parent has closed the connection."""
    try:
        request: Request = connection.recv()
    except (EOFError, OSError):
        return None
    return request


def _exit_with_parent() -> None:
    """Exit some seconds after the parent, even if the environment hangs."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(CLOSE_TIMEOUT)
    os._exit(1)


class ReportErrors:
    """Context manager: sends an error's traceback to the parent and ends the process.

    The environment's state cannot be trusted after an error.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            with suppress(OSError):
                self.connection.send((None, "".join(traceback.format_exception(error))))
            raise SystemExit(1) from error
