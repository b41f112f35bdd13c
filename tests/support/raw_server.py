"""A server on the loopback address that sends whatever bytes a test says, without the manners of HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, create_server, socket


def read_request(connection: socket) -> bytes:
    """A request with its body; empty where the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (chunk := connection.recv(65_536)):
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def reply(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def raw_server(answer: Callable[[socket, bytes], None]) -> Iterator[str]:
    """Calls `answer` with each connection and its request, in a thread each. Gives the address."""
    listening = create_server(("127.0.0.1", 0))
    open_connections: list[socket] = []

    def serve(connection: socket) -> None:
        with suppress(OSError), connection:
            request = read_request(connection)
            if request:
                answer(connection, request)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                open_connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        with suppress(OSError):
            listening.shutdown(SHUT_RDWR)
        listening.close()
        for connection in open_connections:
            with suppress(OSError):
                connection.shutdown(SHUT_RDWR)
        thread.join()
