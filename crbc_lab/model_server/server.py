"""Serves an endpoint over HTTP, with bounds on connections and on the time that each may take."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from crbc_lab.model_server.app import Endpoint
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy

LOOPBACK = ("127.0.0.1", "::1")
MOST_CONNECTIONS = 512
SECONDS = 30.0
"""A connection ends once it has been without a request's head for so long, or without taking its answer."""
IDLE_SECONDS = 75
"""uvicorn's own limit, above that: its usual 5 s is when many clients reuse a connection for the last time."""
STOP_SECONDS = 1
"""For the requests that are answered when the server is ended."""


class _Bounded(H11Protocol):
    """Ends connections on which nothing is asked, or an answer is not taken: uvicorn waits for the first forever."""

    _seen: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        super().connection_made(transport)
        self._timer = self.loop.call_later(SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is self._seen:
            self.transport.abort()
        self._seen = self.cycle
        self._timer = self.loop.call_later(SECONDS, self._look)


def bind(host: str, port: int, exposed: bool) -> socket.socket:
    """A socket at a port of this machine; 0 means any free one.

    Raises `ConfigError` for a host that other machines can reach, unless `exposed`, and for a port in use.
    """
    if host not in LOOPBACK and not exposed:
        raise ConfigError(
            f"--host {host!r} is none of {', '.join(LOOPBACK)}, so other machines could reach the model: "
            "use --exposed to allow that"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2 * MOST_CONNECTIONS)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise ConfigError(f"cannot serve at {host} port {port}: {reason}; choose another --port") from error


def address(sock: socket.socket) -> str:
    """The endpoint's URL, as clients want it."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def server(
    policy: TransformersPolicy, name: str, sock: socket.socket, *, seed: int = 0, key: str = "", exposed: bool = False
) -> uvicorn.Server:
    """A server of `policy` for `sock`; see `Endpoint`. `server(...).run(sockets=[sock])` serves until Ctrl-C."""
    port = sock.getsockname()[1]
    hosts = None if exposed else {f"{host}:{port}" for host in ("127.0.0.1", "[::1]", "localhost")}
    config = uvicorn.Config(
        Endpoint(policy, name, seed=seed, key=key, hosts=hosts).application(),
        http=_Bounded,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return uvicorn.Server(config)


@contextmanager
def serving(policy: TransformersPolicy, name: str = "model", **options: Any) -> Iterator[str]:
    """Context manager: serves in a thread of this process at a free port, and gives the URL."""
    with bind("127.0.0.1", 0, False) as sock:
        served = server(policy, name, sock, **options)
        thread = threading.Thread(target=served.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        while not served.started:
            time.sleep(0.005)
        try:
            yield address(sock)
        finally:
            served.should_exit = True
            thread.join()
