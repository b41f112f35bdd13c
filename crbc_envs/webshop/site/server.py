"""Serves a shop to browsers on this machine: the pages of the shop and one stylesheet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socket import AF_INET6
from typing import NamedTuple
from urllib.parse import parse_qs

import numpy as np

from crbc_envs.webshop.shop.panels import WebShopPanel
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site import render
from crbc_envs.webshop.site.address import PageNotFound, address, number, read_address, split

LOOPBACK = ("127.0.0.1", "::1")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; "
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

    def __init__(self, shop: Shop, panel: WebShopPanel, seed: int = 0) -> None:
        self.shop, self.panel = shop, panel
        self._rng = np.random.default_rng(seed)
        self._style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")

    def respond(self, target: str) -> Response:
        """The response to a GET of a path and query. If it is not a page of the shop: status 404, with the reason."""
        try:
            with _SHOP_LOCK:
                return self._respond(target)
        except PageNotFound as error:
            return Response(HTTPStatus.NOT_FOUND, render.not_found_page(str(error)))

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
        goal_number, state = read_address(target, self.shop)
        if not 0 <= goal_number < len(self.panel):
            raise PageNotFound(f"there is no goal {goal_number}; the last one is {len(self.panel) - 1}")
        if state.kind == "index" and "?" in target:  # an empty search
            return _redirect(address(goal_number, state))
        goal = self.panel[goal_number].content
        bought = tuple(state.options.values())
        reward = self.shop.reward(goal, state.asin, bought) if state.kind == "done" else None
        page = self.shop.page(state, reward.total if reward else 0.0)
        return Response(HTTPStatus.OK, render.shop_page(goal_number, goal, state, page, reward))


def _redirect(location: str) -> Response:
    return Response(HTTPStatus.SEE_OTHER, location=location)


class SiteServer(ThreadingHTTPServer):
    """Serves a `Site` at a port of this machine; 0 means any free port. `url` is its address.

    Raises `ValueError` for a host that other machines can reach, unless `exposed`, and `OSError` for a port in use.
    """

    daemon_threads = True
    block_on_close = False

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
    timeout = 30.0
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
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Does nothing. Requests are not logged, because they contain what people type."""
