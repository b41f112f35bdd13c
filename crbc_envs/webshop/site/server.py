"""Serves a shop to browsers on this machine: the pages of the shop, and one stylesheet."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socket import AF_INET6
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import numpy as np

from crbc_envs.tasks import TaskPanel
from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site import render
from crbc_envs.webshop.site.address import PageNotFound, address, goal_number, number, read_address, split

LOOPBACK = ("127.0.0.1", "::1")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""The headers of every response: nothing is loaded from other hosts, and no script runs."""

_SHOP_LOCK = threading.Lock()
"""Guards the shop, whose caches are not thread-safe."""


class Response(NamedTuple):
    """The response to a request. `location` is the target of a redirect."""

    status: HTTPStatus
    body: str = ""
    kind: str = "text/html"
    location: str = ""


class Site:
    """The pages of a shop for the goals of a panel. `seed` is the seed of the goals that people draw."""

    def __init__(self, shop: Shop, panel: TaskPanel[Goal], seed: int = 0) -> None:
        self.shop, self.panel = shop, panel
        self._rng = np.random.default_rng(seed)
        self._style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")

    def respond(self, target: str) -> Response:
        """The response to a GET of a path and query. If it is not a page of the shop: status 404, with the reason."""
        with _SHOP_LOCK:
            try:
                return self._respond(target)
            except PageNotFound as error:
                return Response(HTTPStatus.NOT_FOUND, self._not_found_page(target, str(error)))

    def _not_found_page(self, target: str, reason: str) -> str:
        asked = goal_number(target)
        if asked is None or not 0 <= asked < len(self.panel):
            return render.not_found_page(reason, len(self.panel))
        return render.not_found_page(reason, len(self.panel), asked, self.panel[asked].content)

    def _respond(self, target: str) -> Response:
        parts = split(target)
        if parts.path == "/":
            return Response(HTTPStatus.OK, render.start_page(len(self.panel), self.panel[0].text))
        if parts.path == render.STYLE:
            return Response(HTTPStatus.OK, self._style, "text/css")
        if parts.path == "/draw":
            return _redirect(f"/goal/{int(self._rng.integers(len(self.panel)))}")
        if parts.path == "/goal":
            return _redirect(f"/goal/{number(parse_qs(parts.query).get('number', [''])[0])}")
        return self._page(target)

    def _page(self, target: str) -> Response:
        asked, state = read_address(target, self.shop)
        if not 0 <= asked < len(self.panel):
            raise PageNotFound(f"there is no goal {asked}; the last one is {len(self.panel) - 1}")
        if state.kind == "index" and "?" in target:  # an empty search
            return _redirect(address(asked, state))
        goal = self.panel[asked].content
        bought = tuple(state.options.values())
        reward = self.shop.reward(goal, state.asin, bought) if state.kind == "done" else None
        page = self.shop.page(state, goal, reward.total if reward else 0.0)
        return Response(HTTPStatus.OK, render.shop_page(render.View(asked, goal, state, page, reward)))


def _redirect(location: str) -> Response:
    return Response(HTTPStatus.SEE_OTHER, location=location)


class SiteServer(ThreadingHTTPServer):
    """Serves a `Site` at a port of this machine; 0 means any free port. `url` is its address.

    Raises `ValueError` for a host that other machines can reach, unless `exposed`, and `OSError` for a port in use.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, site: Site, host: str = "127.0.0.1", port: int = 0, exposed: bool = False) -> None:
        if host not in LOOPBACK and not exposed:
            raise ValueError(
                f"host must be one of {', '.join(LOOPBACK)}; got {host!r}, where other machines could reach the shop: "
                "use exposed (--exposed) to allow that"
            )
        self.site, self.exposed = site, exposed
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
def serving(server: SiteServer) -> Iterator[str]:
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
    server: SiteServer

    def do_GET(self) -> None:
        if self.server.allows_host(self.headers.get("Host", "")):
            response = self.server.site.respond(self.path)
        else:
            response = Response(
                HTTPStatus.MISDIRECTED_REQUEST, "this shop is open on its own machine only", "text/plain"
            )
        body = response.body.encode("utf-8", "replace")
        self.send_response(response.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{response.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600" if response.kind == "text/css" else "no-store")
        if response.location:
            self.send_header("Location", response.location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Does nothing. Requests are not logged, because they contain what people type."""
