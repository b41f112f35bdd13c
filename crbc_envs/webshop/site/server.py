"""Serves a shop to browsers on this machine: pages made from the shop, one stylesheet, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socket import AF_INET6
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import numpy as np

from crbc_envs.webshop.shop.panels import WebShopPanel
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site import render
from crbc_envs.webshop.site.address import NoPage, address, number, read_address

LOOPBACK = ("127.0.0.1", "::1")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""With every answer: nothing is loaded from elsewhere, and no script runs at all."""

_SHOPPING = threading.Lock()
"""What a shop remembers is not made for threads."""


class Answer(NamedTuple):
    """What a request gets; `place` is where a redirect leads."""

    status: HTTPStatus
    body: str = ""
    kind: str = "text/html"
    place: str = ""


class Site:
    """The pages of a shop for the goals of a panel. `seed` is that of the goals people draw."""

    def __init__(self, shop: Shop, panel: WebShopPanel, seed: int = 0) -> None:
        self.shop, self.panel = shop, panel
        self._rng = np.random.default_rng(seed)
        self._style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")

    def answer(self, target: str) -> Answer:
        """What a GET of a path and query gets. What is no page of the shop is status 404, with the reason."""
        try:
            with _SHOPPING:
                return self._answer(target)
        except NoPage as error:
            return Answer(HTTPStatus.NOT_FOUND, render.lost(str(error)))

    def _answer(self, target: str) -> Answer:
        parts = urlsplit(target)
        if parts.path == "/":
            return Answer(HTTPStatus.OK, render.lobby(len(self.panel), self.panel[0].text))
        if parts.path == render.STYLE:
            return Answer(HTTPStatus.OK, self._style, "text/css")
        if parts.path == "/draw":
            return _to(f"/goal/{int(self._rng.integers(len(self.panel)))}")
        if parts.path == "/goal":
            return _to(f"/goal/{number(parse_qs(parts.query).get('number', [''])[0])}")
        return self._page(target)

    def _page(self, target: str) -> Answer:
        goal_number, state = read_address(target, self.shop)
        if not 0 <= goal_number < len(self.panel):
            raise NoPage(f"there is no goal {goal_number}; the last one is {len(self.panel) - 1}")
        if state.kind == "index" and "?" in target:  # an empty search
            return _to(address(goal_number, state))
        goal = self.panel[goal_number].content
        bought = tuple(state.options.values())
        reward = self.shop.reward(goal, state.asin, bought) if state.kind == "done" else None
        page = self.shop.page(state, reward.total if reward else 0.0)
        return Answer(HTTPStatus.OK, render.shop_page(goal_number, goal, state, page, reward))


def _to(place: str) -> Answer:
    return Answer(HTTPStatus.SEE_OTHER, place=place)


class SiteServer(ThreadingHTTPServer):
    """A `Site` at a port of this machine, 0 for any that is free; `url` is its address.

    Raises `ValueError` for a host that others can reach, unless `exposed`, and `OSError` for a port in use.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, site: Site, host: str = "127.0.0.1", port: int = 0, exposed: bool = False) -> None:
        if host not in LOOPBACK and not exposed:
            reason = "others could reach the shop, which exposed allows"
            raise ValueError(f"host must be one of {', '.join(LOOPBACK)}, or {reason}; got {host!r}")
        self.site, self.exposed = site, exposed
        if ":" in host:
            self.address_family = AF_INET6
        super().__init__((host, port), _Handler)
        shown = f"[{host}]" if ":" in host else host
        self.port = int(self.server_address[1])
        self.url = f"http://{shown}:{self.port}"

    def knows(self, host: str) -> bool:
        """Whether a request may name this host: a page of another site, whose name was led here, may not."""
        return self.exposed or host in [f"{name}:{self.port}" for name in ("127.0.0.1", "[::1]", "localhost")]


@contextmanager
def serving(server: SiteServer) -> Iterator[str]:
    """Serve in a thread of this process; gives the address, and closes the server in the end."""
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
        if self.server.knows(self.headers.get("Host", "")):
            answer = self.server.site.answer(self.path)
        else:
            answer = Answer(HTTPStatus.MISDIRECTED_REQUEST, "this shop is open on its own machine only", "text/plain")
        body = answer.body.encode("utf-8", "replace")
        self.send_response(answer.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600" if answer.kind == "text/css" else "no-store")
        if answer.place:
            self.send_header("Location", answer.place)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: they hold what people type."""
