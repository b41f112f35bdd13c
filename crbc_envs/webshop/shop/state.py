"""The state of a session, and the effect of searches and clicks on it.

It reproduces the original's server, including its oddities: "Back to Search" clears everything but the task, the last
results page has a next one, and option values are marked by the address of their page. Source: WebShop,
web_agent_text_env.py (MIT).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from crbc_envs.webshop.shop import pages
from crbc_envs.webshop.shop.pages import Kind

_ROUTES = {"results": "search_results/", "item": "item_page/", "details": "item_sub_page/", "done": "done/"}


@dataclass(slots=True)
class State:
    """The current page of a session, and the history that its page depends on.

    `name` is the session's name in addresses. `page` counts results pages from 1. `visited` has the ASINs of the
    products opened since the last return to the search bar. `options` are those chosen for the current product.
    """

    name: str
    kind: Kind = "index"
    keywords: list[str] = field(default_factory=list)
    page: int = 0
    asin: str = ""
    details: str = ""
    options: dict[str, str] = field(default_factory=dict)
    visited: frozenset[str] = frozenset()

    def search(self, query: str) -> None:
        """Go to the first results page of a query."""
        self._results(query.split(" "), 1)

    def click(self, what: str, group: str | None = None) -> None:
        """Click an element of the current page. `group` is the option group of an option value."""
        if what == pages.BUY.lower():
            self.kind = "done"
        elif what == pages.BACK.lower():
            self._clear()
        elif what == pages.NEXT.lower():
            self._results(self.keywords, self.page + 1)
        elif what == pages.PREVIOUS.lower():
            self._previous()
        elif what.capitalize() in pages.DETAILS:
            self.kind, self.details = "details", what.capitalize()
        else:
            self.kind = "item"
            if group is None:
                self.asin = what.upper()
                self.visited |= {self.asin}
            else:
                self.options[group] = what

    def url(self) -> str:
        """The address of the page. As in the original, it contains the words of the query as typed."""
        place = f"http://127.0.0.1:3000/{_ROUTES.get(self.kind, '')}{self.name}"
        query = "+".join(self.keywords)
        if self.kind == "results":
            return f"{place}/{query}/{self.page}"
        if self.kind == "item":
            return f"{place}/{self.asin}/{query}/{self.page}/{json.dumps(self.options)}"
        if self.kind == "details":
            return f"{place}/{self.asin}/{query}/{self.page}/{self.details}/{self.options}"
        return f"{place}/{self.asin}/{self.options}" if self.kind == "done" else place

    def clicked(self, values: Iterable[str]) -> frozenset[str]:
        """The option values that the page marks: those whose text, in quotes, is in its address.

        A value with a quote or a non-ASCII letter is therefore never marked. A value that was searched for in quotes
        is always marked.
        """
        url = self.url()
        return frozenset(value for value in values if f'"{value}"' in url)

    def text(self) -> str:
        """Everything that the future depends on except the task, as canonical JSON."""
        return json.dumps(
            {
                "page": self.details.lower() if self.kind == "details" else self.kind,
                "asin": self.asin,
                "options": self.options,
                "query": " ".join(self.keywords),
                "number": self.page,
                "visited": sorted(self.visited),
            },
            sort_keys=True,
        )

    def _clear(self) -> None:
        self.kind, self.keywords, self.page, self.details = "index", [], 0, ""
        self.asin, self.options, self.visited = "", {}, frozenset()

    def _results(self, keywords: list[str], page: int) -> None:
        self.kind, self.keywords, self.page = "results", keywords, page
        self.asin, self.options = "", {}

    def _previous(self) -> None:
        """The original distinguishes pages by words in their address, so a query with such a word misleads it."""
        url = self.url()
        if "search_results" in url:
            self._results(self.keywords, self.page - 1)
        elif "item_page" in url:
            self._results(self.keywords, self.page)
        else:
            self.kind = "item"
