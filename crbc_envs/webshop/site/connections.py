"""The open connections of a server, with a limit on how many there are and on the time that each may take."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from socket import SHUT_RDWR, socket

MOST = 64
"""Connections that are served at the same time."""

SECONDS = 30.0
"""For a whole request, from the end of the last one, and for the client to take the whole response."""


class Connections:
    """Connections, each with a deadline. Whoever serves one calls `remove` in the end.

    A connection beyond `MOST` ends the one that has completed no request or response for longest. To end a connection
    makes its reads and writes fail; its thread needs a moment to notice. All methods are thread-safe.
    """

    def __init__(self) -> None:
        self._deadlines: dict[socket, float] = {}
        """In the order of their last progress."""
        self._ending: set[socket] = set()
        self._lock = threading.Lock()

    def add(self, connection: socket) -> bool:
        """Add a connection. False, and it is not added, if `MOST` others still have to notice their end."""
        with self._lock:
            if len(self._deadlines) >= MOST:
                if len(self._ending) >= MOST:
                    return False
                self._end(next(iter(self._deadlines)))
            self._deadlines[connection] = time.monotonic() + SECONDS
            return True

    def progress(self, connection: socket) -> None:
        """A request or a response is complete: the connection has its time for what follows."""
        with self._lock:
            if self._deadlines.pop(connection, None) is not None:
                self._deadlines[connection] = time.monotonic() + SECONDS

    def remove(self, connection: socket) -> None:
        """The connection is closed."""
        with self._lock:
            self._deadlines.pop(connection, None)
            self._ending.discard(connection)

    def end_late(self) -> None:
        """End the connections that are out of time."""
        now = time.monotonic()
        with self._lock:
            for connection in [one for one, deadline in self._deadlines.items() if deadline < now]:
                self._end(connection)

    def end_all(self) -> None:
        """End every connection."""
        with self._lock:
            for connection in list(self._deadlines):
                self._end(connection)

    def _end(self, connection: socket) -> None:
        del self._deadlines[connection]
        self._ending.add(connection)
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)
