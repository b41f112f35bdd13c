"""A shop, shared by all sessions of a process: catalogue, prices, goals, search, and caches.

Sessions never change a shop. The caches (searches, pages, rewards) hold pure functions of their keys, so they change
the speed but never a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crbc_envs.webshop.products.catalogue import Catalogue, Product
from crbc_envs.webshop.products.draws import Draws
from crbc_envs.webshop.search.engine import SearchEngine
from crbc_envs.webshop.shop import goals as goal_lists
from crbc_envs.webshop.shop import pages
from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.nouns import make_tagger
from crbc_envs.webshop.shop.pages import Page
from crbc_envs.webshop.shop.reward import Reward, reward
from crbc_envs.webshop.shop.state import State

HITS = 50
"""The maximum number of search hits."""

WINDOW = 10
"""The number of products on a results page in the original."""

LISTS = 64
"""The number of cached lists of a category or a query. One has four bytes a product."""

PAGES = 2_048
"""The number of cached pages of each kind, about 10 kB each."""

ANSWERS = 1 << 14
"""The number of cached searches, and of cached rewards, a few hundred bytes each."""


class Shop:
    """A catalogue with `prices` in dollars by product number, and `goals` in the order of the catalogue.

    `tagger` selects the tagger that finds the nouns of titles (`nouns.make_tagger`); the attribute holds its name. A
    results page has `per_page` products. `drawn` replaces the prices and goals that the original would draw.
    `edition` is the number of the generated shop (`generate.EDITION`), or None. `opened_with` are the arguments of
    `open_shop`, which stand for it in a pickle.
    """

    opened_with: tuple[Any, ...]

    def __init__(
        self,
        catalogue: Catalogue,
        engine: SearchEngine,
        goals: Literal["synthetic", "human"] = "synthetic",
        price_seed: int = 0,
        tagger: Literal["auto", "spacy", "fallback"] = "auto",
        per_page: int = WINDOW,
        drawn: tuple[Sequence[float], Sequence[Goal]] | None = None,
        edition: int | None = None,
    ) -> None:
        if per_page < 1:
            raise ValueError(f"per_page must be at least 1, got {per_page}")
        self.catalogue, self.engine = catalogue, engine
        self.per_page, self.price_seed, self.edition = per_page, price_seed, edition
        self.prices, self.goals = goal_lists.draw(catalogue, goals, price_seed) if drawn is None else drawn
        self.tagger, nouns_of = make_tagger(tagger)
        self.title_nouns = lru_cache(ANSWERS)(nouns_of)
        self.hits = lru_cache(ANSWERS)(self._hits)
        self._listed = lru_cache(LISTS)(catalogue.labelled)
        self._results_page = lru_cache(PAGES)(self._make_results)
        self._item_page = lru_cache(PAGES)(self._make_item)
        self._details_page = lru_cache(PAGES)(self._make_details)
        self._reward_of = lru_cache(ANSWERS)(self._compute_reward)

    def found(self, state: State, goal: Goal) -> Sequence[int]:
        """The numbers of the products on the results pages of a state, all pages together.

        The first word may ask for a list instead of a search, as in the original: "<c> beauty" is a category, "<q>
        body wash" are the products of that query, all of them in the order of the catalogue. "<r>" are 50 random
        products: a function of the goal and the state, where the original draws anew at every look. "<a>", and "<c>"
        alone, are ordinary words; the original fails there.
        """
        first, *others = state.keywords
        if first == "<r>":
            return self._drawn(state, goal)
        if first == "<c>" and others:
            return self._listed("category", others[0].strip())
        if first == "<q>":
            return self._listed("query", " ".join(others).strip())
        return self.hits(" ".join(state.keywords))

    def page(self, state: State, goal: Goal, total: float = 0.0) -> Page:
        """The page of a state, for a goal. The page after a purchase shows the reward, `total`."""
        if state.kind == "results":
            return self._results(state, goal)
        if state.kind == "item":
            return self._item(state)
        if state.kind == "details":
            return self._details_page(state.asin, state.details)
        if state.kind == "done":
            return pages.done(state.asin, state.options, total)
        return pages.index()

    def reward(self, goal: Goal, asin: str, options: Sequence[str]) -> Reward:
        """The reward for buying a product with these option values."""
        return self._reward_of(goal, asin, tuple(options))

    @cached_property
    def goal_products(self) -> NDArray[np.int32]:
        """The product number of each goal."""
        known = getattr(self.goals, "products", None)
        return np.array([goal.product for goal in self.goals], dtype=np.int32) if known is None else known

    def product(self, asin: str) -> tuple[int, Product]:
        """A product and its number. Raises `KeyError` for an ASIN that is not in the catalogue."""
        number = self.catalogue.find(asin)
        if number is None:
            raise KeyError(asin)
        return number, self.catalogue[number]

    # ---- internals ----------------------------------------------------------------------------

    def _hits(self, query: str) -> tuple[int, ...]:
        """The numbers of the products that a query finds, best first."""
        return tuple(number for number, _ in self.engine.search(query, HITS))

    def _drawn(self, state: State, goal: Goal) -> Sequence[int]:
        """Other words after "<r>", another page, or more visited products give another draw."""
        seen = " ".join([goal.digest(), str(state.page), *sorted(state.visited), *state.keywords])
        draws = Draws(list(sha256(seen.encode("ascii", "ignore")).digest()))  # addresses of the site lose surrogates
        numbers: dict[int, None] = {}
        while len(numbers) < min(HITS, len(self.catalogue)):
            numbers[draws.between(0, len(self.catalogue) - 1)] = None
        return list(numbers)

    def _results(self, state: State, goal: Goal) -> Page:
        hits = self.found(state, goal)
        window = tuple(hits[(state.page - 1) * self.per_page : state.page * self.per_page])
        if not state.visited:
            visited: frozenset[str] = frozenset()
        else:
            visited = state.visited.intersection(self.catalogue[number].asin for number in window)
        return self._results_page(state.page, len(hits), window, visited)

    def _make_results(self, number: int, hits: int, window: tuple[int, ...], visited: frozenset[str]) -> Page:
        return pages.results(number, hits, map(self.catalogue.__getitem__, window), visited)

    def _item(self, state: State) -> Page:
        _, product = self.product(state.asin)
        clicked = state.clicked(value for values in product.options.values() for value in values)
        return self._item_page(state.asin, clicked)

    def _make_item(self, asin: str, clicked: frozenset[str]) -> Page:
        return pages.item(self.product(asin)[1], clicked)

    def _make_details(self, asin: str, details: str) -> Page:
        return pages.details(self.product(asin)[1], details)

    def _compute_reward(self, goal: Goal, asin: str, options: tuple[str, ...]) -> Reward:
        target, (number, bought) = self.catalogue[goal.product], self.product(asin)
        nouns = self.title_nouns(target.title), self.title_nouns(bought.title)
        return reward(goal, target, bought, self.prices[number], options, nouns)
