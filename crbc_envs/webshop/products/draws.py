"""Small random draws. Doubles are drawn from the generator in blocks, because single draws are slow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

T = TypeVar("T")

_BUFFER = 1024


class Draws:
    """Random draws that depend on the seed alone. They use only the generator's doubles."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(list(seed))
        self._buffer: list[float] = []

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if not self._buffer:
            self._buffer = self._rng.random(_BUFFER).tolist()
        return self._buffer.pop()

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def quantile(self, points: Sequence[tuple[float, float]]) -> float:
        """A number of a distribution given by some of its quantiles: (probability, value) from 0 to 1, in order."""
        at = self.uniform()
        (low, first), (high, last) = next(pair for pair in pairwise(points) if at < pair[1][0])
        return first + (last - first) * (at - low) / (high - low)

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
        """`count` random items in their original order, or all items if there are fewer."""
        return [items[i] for i in sorted(self.shuffled(range(len(items)), count))]
