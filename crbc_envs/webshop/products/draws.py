"""Many small draws from one generator: taken from it by the thousand, since a single one is dear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

_BUFFER = 1024


class Draws:
    """Draws that are functions of the seed alone; they use nothing but the generator's doubles."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(list(seed))
        self._waiting: list[float] = []

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if not self._waiting:
            self._waiting = self._rng.random(_BUFFER).tolist()
        return self._waiting.pop()

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.uniform() * len(items))]

    def shuffled(self, items: Sequence[T], count: int | None = None) -> list[T]:
        """The items in a random order, or the first `count` of such an order (Fisher-Yates)."""
        order = list(items)
        count = len(order) if count is None else min(count, len(order))
        for place in range(count):
            other = self.between(place, len(order) - 1)
            order[place], order[other] = order[other], order[place]
        return order[:count]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` of the items in the order they have; all of them if there are no more."""
        return [items[i] for i in sorted(self.shuffled(range(len(items)), count))]
