"""A shop to search, browse and buy in. It was written after `crbc_plus` was chosen, and nothing was chosen on it."""

from __future__ import annotations

from itertools import product

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import LOST, WON, Outcomes, table

HORIZON = 15
QUERIES = 3
SHELF = 4
"""Products on a page of results."""
COLOURS = SIZES = 2

Page = tuple[int, ...]
"""() is the search page, (query,) its results, (query, product) a product's page, and (query, product, colour, size)
the same with options chosen; -1 is an option that is open."""

SEARCH: Page = ()
BUY, BACK = 0, 1


def shop(seed: int, index: int) -> TabularMDP:
    """One product in one colour and size is wanted. Two queries may find it, on different shelves.

    A query shows its own results with chance .8 and another's otherwise. To buy the wanted product with both options
    wins. With an option open it wins by chance: .5 for each. Anything else that is bought loses. Every page but the
    first has a way back. The numbers of actions are shuffled.
    """
    rng = np.random.default_rng([7, seed, index])
    finds = rng.permutation(QUERIES)[:2]
    offered = {int(query): int(rng.integers(SHELF)) for query in finds}
    options = (int(rng.integers(COLOURS)), int(rng.integers(SIZES)))
    names = rng.permutation(2 + max(QUERIES, SHELF, COLOURS + SIZES)).tolist()

    def outcomes(page: Page) -> dict[int, Outcomes[Page]]:
        return {names[a]: row for a, row in _actions(page, offered, options).items()}

    return table(SEARCH, outcomes, HORIZON)


def _actions(page: Page, offered: dict[int, int], options: tuple[int, int]) -> dict[int, Outcomes[Page]]:
    if not page:
        return {2 + query: _results(query) for query in range(QUERIES)}
    if len(page) == 1:
        return {BACK: [((), 1.0)]} | {2 + item: [((*page, item, -1, -1), 1.0)] for item in range(SHELF)}
    query, item, colour, size = page
    right = offered.get(query) == item
    for chosen, wish in zip((colour, size), options, strict=True):
        right = right and chosen in (-1, wish)
    chance = 0.5 ** (colour, size).count(-1) if right else 0.0
    outcomes: dict[int, Outcomes[Page]] = {BUY: [(WON, chance), (LOST, 1.0 - chance)], BACK: [((query,), 1.0)]}
    for option, value in product(range(2), range(COLOURS)):
        after = (query, item, value, size) if option == 0 else (query, item, colour, value)
        outcomes[2 + option * COLOURS + value] = [(after, 1.0)]
    return outcomes


def _results(query: int) -> Outcomes[Page]:
    other = 0.2 / (QUERIES - 1)
    return [((shown,), 0.8 if shown == query else other) for shown in range(QUERIES)]
