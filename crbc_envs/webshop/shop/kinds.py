"""The panel `by_kind`, in which no product of a split wins a goal of another, and which products win a goal.

A kind is a query of the catalogue, such as "men's loafers". Its products are all in one split. Products of another kind
may still win a goal: the reward takes them for the same type if two parts of their categories are equal, or more than a
fifth of the nouns of their titles. A goal that a product of another split wins is therefore in no split.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from anchors.columns import Bools
from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.reward import (
    FULL_TITLE,
    LEAST_TITLE,
    alike,
    category_parts,
    normalise_colour,
    texts_of,
    wanted_text,
)
from crbc_envs.webshop.shop.shop import Shop

COMPARED = 5_000
"""The largest shop in which every goal is compared with every product. In a larger one, kinds whose categories share
two parts are in one split instead, and no goal is left out. Some are then won by a title of another split."""

SHARES = (0.8, 0.1, 0.1)
"""The shares of the goals that the splits should have, in the order of `tasks.SPLITS`."""

NOWHERE = -1
"""The split of a goal that is in none."""

_LARGE = 0.05
"""Clusters with more than this share of the goals are placed before the others."""


@lru_cache(maxsize=4)
def split_of_goals(shop: Shop) -> NDArray[np.int8]:
    """The split of every goal in `by_kind`, as a place in `tasks.SPLITS`, or `NOWHERE`. It follows from the shop."""
    of, pairs = shop.catalogue.kinds()
    queries, query_of = np.unique([query for query, _ in pairs], return_inverse=True)
    kinds = query_of[np.asarray(of)]
    goals = np.bincount(kinds[shop.goal_products], minlength=len(queries))
    compared = len(kinds) <= COMPARED
    clusters = range(len(queries)) if compared else _clusters(query_of.tolist(), [parts for _, parts in pairs])
    split = _place(clusters, goals, queries.tolist())[kinds]
    splits = split[shop.goal_products]
    if compared:
        winners = Winners(shop, split)
        splits[[place for place, goal in enumerate(shop.goals) if len(winners.of(goal))]] = NOWHERE
    return splits


def _clusters(kinds: Sequence[int], categories: Sequence[str]) -> list[int]:
    """By kind, the kind that stands for its cluster. Two kinds are joined if some of their categories share two parts.

    `kinds` and `categories` belong together; a kind may occur several times.
    """
    parents, first = list(range(max(kinds) + 1)), dict[tuple[str, str], int]()

    def cluster(kind: int) -> int:
        while parents[kind] != kind:
            kind = parents[kind]
        return kind

    for kind, category in zip(kinds, categories, strict=True):
        for parts in combinations(sorted(category_parts(category)), 2):
            parents[cluster(kind)] = cluster(first.setdefault(parts, kind))
    return [cluster(kind) for kind in range(len(parents))]


def _place(clusters: Sequence[int], goals: NDArray[np.intp], queries: Sequence[str]) -> NDArray[np.int8]:
    """The split of each kind. A cluster goes to the split that lacks most goals: large ones first, others by hash."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for kind, cluster in enumerate(clusters):
        members[cluster].append(kind)
    room, splits = np.array(SHARES) * goals.sum(), np.zeros(len(queries), dtype=np.int8)

    def turn(kinds: list[int]) -> tuple[int, bytes]:
        size, name = int(goals[kinds].sum()), min(queries[kind] for kind in kinds)
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
        return -size if size > _LARGE * goals.sum() else 0, digest

    for kinds in sorted(members.values(), key=turn):
        place = np.argmax(room)
        splits[kinds] = place
        room[place] -= goals[kinds].sum()
    return splits


class Winners:
    """Finds the products of a shop that win a goal: those whose purchase can score 1.

    A product is taken to have every wanted option that matches one of its values. If two match values of one group
    alone, it counts although they cannot both be chosen. With `split`, by product number, only products of another
    split than the goal's own product count.
    """

    def __init__(self, shop: Shop, split: NDArray[np.int8] | None = None) -> None:
        self._products = [shop.catalogue[number] for number in range(len(shop.catalogue))]
        self._prices = np.array([shop.prices[number] for number in range(len(self._products))])
        self._split = split
        self._nouns = [shop.title_nouns(product.title) for product in self._products]
        self._texts = [texts_of(product) for product in self._products]
        self._titles = _Holders(self._nouns)
        self._queries = _Holders([[product.query] for product in self._products])
        self._categories = _Holders([category_parts(product.product_category) for product in self._products])
        self._attributes = _Holders([product.attributes for product in self._products])
        values = ([v for values in product.options.values() for v in values] for product in self._products)
        self._options = _Holders([map(normalise_colour, own) for own in values])
        self._possible: dict[tuple[int, tuple[str, ...], float], NDArray[np.intp]] = {}

    def of(self, goal: Goal) -> NDArray[np.intp]:
        """The numbers of the products that win a goal."""
        key = goal.product, goal.attributes, goal.price_cap
        if key not in self._possible:
            self._possible[key] = self._without_options(goal)
        products = self._possible[key]
        for option in goal.options if len(products) else ():
            products = products[self._options.like(wanted_text(option))[products]]
        return products

    def _without_options(self, goal: Goal) -> NDArray[np.intp]:
        """The products that would win the goal if it named no options."""
        possible = self._of_type(goal.product) & (self._prices <= goal.price_cap)
        if self._split is not None:
            possible &= self._split != self._split[goal.product]
        products = np.flatnonzero(possible)
        for attribute in goal.attributes if len(products) else ():
            own = self._attributes.like(attribute)
            products = products[
                [bool(own[p]) or any(attribute in text for text in self._texts[p]) for p in products.tolist()]
            ]
        return products

    def _of_type(self, number: int) -> Bools:
        """The products whose type counts in full where `number` is the goal's own."""
        product, nouns = self._products[number], self._nouns[number]
        score = self._titles.count(set(nouns)) / len(nouns) if nouns else np.full(len(self._products), FULL_TITLE)
        match = self._queries.count([product.query]) > 0
        match |= self._categories.count(category_parts(product.product_category)) >= 2
        return (match & (score >= LEAST_TITLE)) | (score > FULL_TITLE)


@lru_cache(maxsize=1)
def winners(shop: Shop) -> Winners:
    """The winners of a shop, which keep what they have compared."""
    return Winners(shop)


class _Holders:
    """Which products have a text, or one like it."""

    def __init__(self, texts: Iterable[Iterable[str]]) -> None:
        holders: defaultdict[str, list[int]] = defaultdict(list)
        self._size = 0
        for self._size, own in enumerate(texts, 1):
            for text in dict.fromkeys(own):
                holders[text].append(self._size - 1)
        self._holders = {text: np.array(numbers) for text, numbers in holders.items()}
        self._known: dict[str, Bools] = {}

    def count(self, texts: Collection[str]) -> NDArray[np.intp]:
        """By product: how many of these texts it has."""
        products = [self._holders[text] for text in texts if text in self._holders]
        return (
            np.bincount(np.concatenate(products), minlength=self._size)
            if products
            else np.zeros(self._size, dtype=np.intp)
        )

    def like(self, text: str) -> Bools:
        """By product: whether it has a text that matches this one by the comparison of the reward."""
        if text not in self._known:
            own = list(self._holders)
            matching = [own[place] for place in np.flatnonzero(alike(own, text)).tolist()] if own else []
            self._known[text] = self.count(matching) > 0
        return self._known[text]
