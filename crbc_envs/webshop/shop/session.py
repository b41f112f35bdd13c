"""A session: one episode in a shop. It maps actions to pages and to the reward of the purchase."""

from __future__ import annotations

from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.html import html
from crbc_envs.webshop.shop.pages import SEARCH
from crbc_envs.webshop.shop.reward import Reward
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.shop.state import State

OBSERVATIONS = ("text_rich", "text", "html", "url")


def parse(action: str) -> tuple[str, str] | None:
    """Parse an action: "search" or "click", and its argument in lower case. None for any other text.

    Like the original's pattern, `(.+)\\[(.+)\\]`, it uses the last brackets and ignores the text after them. An
    element whose text has brackets can therefore not be clicked.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 0, max(end - 1, 0))
    kind = line[: max(start, 0)]
    return (kind, line[start + 1 : end].lower()) if kind in ("search", "click") else None


class Session:
    """The state of one episode in a shared shop. `reward` is None until the purchase."""

    def __init__(self, shop: Shop, goal: Goal, name: str) -> None:
        self.shop, self.goal = shop, goal
        self.state = State(name)
        self.reward: Reward | None = None
        self.page = shop.page(self.state, goal)

    def executable(self, action: str) -> bool:
        """Whether an action can be executed: any search, on every page, and a click on an element of the page."""
        parsed = parse(action)
        return parsed is not None and (parsed[0] == "search" or parsed[1] in self.page.clickables)

    def act(self, action: str) -> None:
        """Execute an action. click[search], and an action that cannot be executed, change nothing."""
        kind, what = parse(action) or ("", "")
        if kind == "search":
            self.state.search(what)
        elif kind == "click" and what in self.page.clickables and what != SEARCH.lower():
            self.state.click(what, self.page.clickables[what])
        else:
            return
        if self.state.kind == "done":
            self.reward = self.shop.reward(self.goal, self.state.asin, tuple(self.state.options.values()))
        self.page = self.shop.page(self.state, self.goal, self.reward.total if self.reward else 0.0)

    def observation(self, mode: str) -> str:
        """The observation in one of the modes of `OBSERVATIONS`."""
        if mode == "url":
            return self.state.url()
        if mode == "html":
            return html(self.page, self.goal.text)
        return self.page.observation(mode, self.goal.text)
