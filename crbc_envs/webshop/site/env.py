"""CRBC-WebShopSite-v0: the shop as a web site, used through a browser."""

from __future__ import annotations

import json
import weakref
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from crbc_envs.local_server import serving
from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.pages import Node, Page
from crbc_envs.webshop.shop.reward import Reward
from crbc_envs.webshop.shop.session import Session, parse
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site.address import SHOPPER, read_address
from crbc_envs.webshop.site.browser import Browser, Screen, require_browser
from crbc_envs.webshop.site.server import Site, SiteServer


class SiteSession(Session):
    """A session in a browser. Actions are clicks and searches in the browser.

    Page, task, state and reward are read from the document and its address.
    """

    def __init__(self, shop: Shop, goal: Goal, browser: Browser, url: str) -> None:
        super().__init__(shop, goal, SHOPPER)
        self.browser = browser
        self._read(browser.open(url))

    def act(self, action: str) -> None:
        kind, what = parse(action) or ("", "")
        if kind == "search":
            self._read(self.browser.search(what))
        elif kind == "click" and what in self.page.clickables:
            self._read(self.browser.click(node_index(self.page, what)))

    def _read(self, screen: Screen) -> None:
        _, self.state = read_address(screen.url, self.shop)
        self.page = Page(screen.kind, tuple(Node(*node) for node in screen.nodes))
        self.goal = replace(self.goal, text=screen.instruction)
        if screen.parts:
            parts: dict[str, Any] = {name: json.loads(value) for name, value in screen.parts}
            self.reward = Reward(**{"r_option": None, "w_option": None, **parts})


def node_index(page: Page, what: str) -> int:
    """The number of the node that `click[what]` clicks.

    Among equal option values it is the last one, as in the original. An option value takes precedence over a button
    or product with the same text.
    """
    targets = [node.text if node.role == "option" else node.text.lower() for node in page.nodes]
    matches = [i for i, node in enumerate(page.nodes) if node.role != "text" and targets[i] == what]
    options = [i for i in matches if page.nodes[i].role == "option"]
    return (options or matches)[-1]


class WebShopSiteEnv(WebShopEnv):
    """`WebShopEnv` on the real site: a server in this process, and a headless Chromium as its client.

    The arguments are those of the text environment. The same actions give the same goals, observations, anchors and
    rewards. All that the agent sees is read from the browser, with two calls per step. Each instance runs its own
    browser, about 430 MB, from the first reset until `close`. A browser that crashes is replaced, and the episode
    continues at the same page.

    As root, Chromium runs without its sandbox: `unsafe_root` or CRBC_UNSAFE_ROOT=1 allows that. Raises `BrowserError`
    for root without it, and if Chromium, its driver or Selenium is missing.
    """

    def __init__(self, *args: Any, unsafe_root: bool = False, **kwargs: Any) -> None:
        require_browser(unsafe_root)
        super().__init__(*args, **kwargs)
        self.browser = Browser(unsafe_root)
        self._open = ExitStack()
        weakref.finalize(
            self, self._open.close
        )  # closes the server at exit while its thread still runs; later it would wait for ever
        self._url = ""

    def _begin(self, task: Goal) -> None:
        if not self._url:
            self._url = self._open.enter_context(serving(SiteServer(Site(self.shop, self.panel))))
        assert self._task is not None
        number = self._task.id.rpartition("/")[2]
        self.session = SiteSession(self.shop, task, self.browser, f"{self._url}/goal/{number}")

    def __reduce__(self) -> Any:
        raise TypeError("CRBC-WebShopSite-v0 drives a browser, so it cannot be pickled; CRBC-WebShop-v0 can")

    def close(self) -> None:
        self.browser.close()
        self._open.close()
        self._url = ""
