"""A cache of limited size."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, at most `size` of them. When it is full, the older half is removed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of `key`. It is made by `make` if it is not cached."""
        value = self._values.get(key)
        if value is None:
            value = make()
            if len(self._values) >= self._size:
                for old in list(self._values)[: (self._size + 1) // 2]:
                    del self._values[old]
            self._values[key] = value
        return value
