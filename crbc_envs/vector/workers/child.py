"""What runs in a worker process: it answers requests until its connection ends."""

from __future__ import annotations

import os
import traceback
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from crbc_envs.vector.workers.memory import lend
from crbc_envs.vector.workers.worker import MemberServer


def worker_main(socket_fd: int, memory: int | None) -> None:
    """The main function of a worker process. Returns when the parent closes the connection or dies."""
    with Connection(socket_fd) as connection, ReportErrors(connection), closing(MemberServer()) as server:
        first = _next(connection)
        if first is None:
            return
        folder, variables, script = first
        os.environ.clear()  # the fork server has those of its own start
        os.environ.update(variables)
        with suppress(OSError):  # the folder may be gone
            os.chdir(folder)
        if script is not None:
            script.load()
        while (request := _next(connection)) is not None:
            number, result = server.handle(*request)
            connection.send((number, *lend(result, memory)))


def _next(connection: Connection) -> Any:
    """The next message; None once the parent has closed the connection."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        return None


class ReportErrors:
    """Context manager: sends an error's traceback to the parent and ends the process.

    The environment's state cannot be trusted after an error. Where the parent no longer listens, it is printed.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            try:
                self.connection.send((None, "".join(traceback.format_exception(error)), []))
            except OSError:
                if not isinstance(error, BrokenPipeError):
                    traceback.print_exception(error)
            raise SystemExit(1) from error
