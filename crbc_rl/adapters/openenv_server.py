"""OpenEnv: the server of `crbc serve openenv`. Sessions are capped, and end when their client is gone or idle."""

from __future__ import annotations

import resource
import socket
from contextlib import closing, suppress
from functools import partial
from typing import Any

from crbc_rl.adapters.openenv import CrbcAction, CrbcObservation  # first: it checks OpenEnv's version

# isort: split
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import HTTPEnvServer
from rich.console import Console
from rich.markup import escape
from starlette.types import ASGIApp

from crbc_rl.adapters.openenv_env import CrbcEnvironment
from crbc_rl.adapters.openenv_gate import LOOPBACK, Gate
from crbc_rl.config.extensions import environment_errors, typed_id
from crbc_rl.errors import ConfigError
from crbc_rl.version import __version__

TASK_API = ("list_environments", *(f"{{env_name}}/{name}" for name in ("splits", "num_tasks", "task", "tasks")))
OPENAPI, MCP = "/openapi.json", "/mcp"
OPEN = {OPENAPI, *(f"/{path}" for path in ("ws", "health", "metadata", "schema", *TASK_API, "{env_name}/task_range"))}
"""What is served. OpenEnv has more: MCP, pages about itself, and /reset, /step and /state, which have no session."""
NO_TOOLS = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32601, "message": "there are no tools: sessions are at /ws"},
}
"""What is answered at /mcp, where `openenv validate` asks whether somebody answers."""

PING_SECONDS = 20.0
"""A session is pinged so often. One that does not answer within as long again is gone."""

SPARE_FILES = 128
"""Open files beside those of the sessions."""


def serve(
    env_id: str,
    kwargs: dict[str, Any],
    *,
    host: str,
    port: int,
    sessions: int,
    idle_seconds: float,
    exposed: bool,
    console: Console,
) -> None:
    """Serve `CrbcEnvironment(env_id, **kwargs)` until Ctrl-C, to at most `sessions` clients at a time.

    A session without a message for `idle_seconds` ends. Port 0 is any free one. Raises `ConfigError` for an
    environment that cannot be made, a host that other machines can reach unless `exposed`, a port in use, and more
    sessions than the process may have open files; and what the environment raises for missing data or packages.
    """
    if host not in LOOPBACK and not exposed:
        raise ConfigError(f"--host {host}: other machines could reach it, and there is no login; add --exposed")
    _check_limits(sessions, idle_seconds)
    name = typed_id(env_id)
    with environment_errors(f"{env_id} cannot be served", name):
        app = application(name, sessions, idle_seconds, exposed=exposed, **kwargs)
    with _listening(host, port) as listener:
        shown = f"http://{LOOPBACK.get(host, host)}:{listener.getsockname()[1]}"
        started = f"{env_id} at [bold]{escape(shown)}[/] for up to {sessions} sessions  (Ctrl-C ends it)"
        console.print(started, soft_wrap=True, highlight=False)
        config = uvicorn.Config(
            app,
            log_level="error",
            timeout_graceful_shutdown=5,
            ws_per_message_deflate=False,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
        )
        with suppress(KeyboardInterrupt):  # which uvicorn raises again, unless interrupts are ignored
            uvicorn.Server(config).run(sockets=[listener])
        console.print("closed")


def application(env_id: str, sessions: int, idle_seconds: float, *, exposed: bool = False, **kwargs: Any) -> ASGIApp:
    """The ASGI application. Raises what making the environment raises, and beginning its first task."""
    if "split" in kwargs:
        raise ValueError("each reset says its split, leave the option out")
    make = partial(CrbcEnvironment, env_id, **kwargs)
    with closing(make()) as env:
        env.reset(index=0)  # what is wrong with the arguments is said now
    app = FastAPI(title="crbc", version=__version__, openapi_url=OPENAPI)
    app.add_exception_handler(ValueError, lambda _, error: JSONResponse({"detail": str(error)}, status_code=400))
    HTTPEnvServer(make, CrbcAction, CrbcObservation, sessions, env_name="crbc").register_routes(app)
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) in OPEN]
    app.add_api_route(MCP, lambda: NO_TOOLS, methods=["POST"])
    return Gate(app, idle_seconds, exposed)


def _check_limits(sessions: int, idle_seconds: float) -> None:
    if sessions < 1:
        raise ConfigError(f"--sessions {sessions}: at least 1 is wanted")
    if not idle_seconds > 0:
        raise ConfigError(f"--idle-seconds {idle_seconds:g}: a positive number is wanted")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = sessions + SPARE_FILES
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(f"--sessions {sessions}: a process may have {hard} open files here; {needed} are needed")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _listening(host: str, port: int) -> socket.socket:
    """A socket at a port. What a lost client has not taken is kept for a minute, not for a quarter of an hour."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise ConfigError(f"cannot serve at {host} port {port}: {reason}; choose another --port") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    return listener
