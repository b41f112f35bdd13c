"""Serves an endpoint over HTTP, on this machine unless it is told otherwise."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from crbc_envs.local_server import LOOPBACK
from crbc_lab.model_server.app import Endpoint
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy

IDLE_SECONDS, STOP_SECONDS = 75, 1
"""Of a connection that is kept open: many clients reuse it late; for what is answered when the server ends."""


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
        return socket.create_server((host, port), family=family, backlog=1_024)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise ConfigError(f"cannot serve at {host} port {port}: {reason}; choose another --port") from error


def address(sock: socket.socket) -> str:
    """The endpoint's URL, as clients want it."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def server(policy: TransformersPolicy, name: str, owner: str = Endpoint.owner, **options: Any) -> uvicorn.Server:
    """A server of `policy`; see `Endpoint`. `server(...).run(sockets=[sock])` serves until Ctrl-C."""
    endpoint = Endpoint(policy, name, **options)
    endpoint.owner = owner
    config = uvicorn.Config(
        endpoint.application(),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return uvicorn.Server(config)
