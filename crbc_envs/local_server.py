"""Serves pages to browsers on this machine over HTTP: GET alone, and no other site can ask for them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from typing import Any, NamedTuple

LOOPBACK = ("127.0.0.1", "::1")


class Response(NamedTuple):
    """The response to a request. `location` is the target of a redirect."""

    status: HTTPStatus
    body: str = ""
    kind: str = "text/html"
    location: str = ""


class LocalServer(ThreadingHTTPServer):
    """Serves `what`, such as "the shop", at a port of this machine; 0 means any free port. `url` is its address.

    `respond` gives the response to a GET of a path and query, and is called by several threads. Every response has the
    Content-Security-Policy `policy`. Raises `ValueError` for a host that other machines can reach, unless `exposed`,
    and `OSError` for a port in use.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        respond: Callable[[str], Response],
        what: str,
        policy: str,
        host: str = "127.0.0.1",
        port: int = 0,
        exposed: bool = False,
    ) -> None:
        if host not in LOOPBACK and not exposed:
            raise ValueError(
                f"host must be one of {', '.join(LOOPBACK)}; got {host!r}, where other machines could reach {what}: "
                "use exposed (--exposed) to allow that"
            )
        self.respond, self.what, self.policy, self.exposed = respond, what, policy, exposed
        if ":" in host:
            self.address_family = AF_INET6
        super().__init__((host, port), _Handler)
        shown = f"[{host}]" if ":" in host else host
        self.port = int(self.server_address[1])
        self.url = f"http://{shown}:{self.port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback, except for a client that went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def allows_host(self, host: str) -> bool:
        """Whether a request may have this Host header. This blocks other sites whose name resolves to this server."""
        return self.exposed or host in [f"{name}:{self.port}" for name in ("127.0.0.1", "[::1]", "localhost")]


@contextmanager
def serving(server: LocalServer) -> Iterator[str]:
    """Context manager: serves in a thread of this process. Gives the address, and closes the server at the end."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "crbc", ""
    disable_nagle_algorithm = True
    server: LocalServer

    def do_GET(self) -> None:
        if self.server.allows_host(self.headers.get("Host", "")):
            response = self.server.respond(self.path)
        else:
            reason = f"{self.server.what} is open on its own machine only"
            response = Response(HTTPStatus.MISDIRECTED_REQUEST, reason, "text/plain")
        body = response.body.encode("utf-8", "replace")
        self.send_response(response.status)
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Type", f"{response.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600" if response.kind == "text/css" else "no-store")
        if response.location:
            self.send_header("Location", response.location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Does nothing. Requests are not logged, because they contain what people type."""
