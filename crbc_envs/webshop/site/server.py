"""Serves a shop to browsers on this machine: the pages of the shop, and one stylesheet."""

from __future__ import annotations

import threading
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import parse_qs

import numpy as np

from crbc_envs.local_server import LocalServer, Response
from crbc_envs.tasks import TaskPanel
from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site import render
from crbc_envs.webshop.site.address import PageNotFound, address, goal_number, number, read_address, split

POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

_SHOP_LOCK = threading.Lock()
"""Guards the shop, whose caches are not thread-safe."""


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


class SiteServer(LocalServer):
    """Serves a `Site` like a `LocalServer`. Nothing is loaded from other hosts, and no script runs."""

    def __init__(self, site: Site, host: str = "127.0.0.1", port: int = 0, exposed: bool = False) -> None:
        self.site = site
        super().__init__(site.respond, "the shop", POLICY, host, port, exposed)
