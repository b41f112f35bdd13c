"""The arrays that a group's batches of frames are drawn into. One is used again when nobody else holds it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from crbc_envs.core import aligned_empty

MOST_KEPT = 2
"""A caller that keeps the last batch while it asks for the next one makes use of two arrays in turn."""


class FrameArrays:
    """Arrays of one shape and type. `take` never gives one that somebody still holds.

    A holder is anything that refers to the array: a name, a container, a view of it, a tensor that shares its memory.
    So whoever keeps a batch never sees it change, and whoever keeps all of them gets a new array every time.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape, self.dtype = shape, dtype
        self._kept: list[NDArray[Any]] = []

    def take(self) -> NDArray[Any]:
        """An array that nobody else holds. Its content is undefined: all of it is to be written."""
        kept = self._kept
        for i in range(len(kept)):
            if _references(kept, i) == _ALONE:
                return kept[i]
        if len(kept) == MOST_KEPT:
            del kept[0]
        kept.append(aligned_empty(self.shape, self.dtype))
        return kept[-1]


def _references(arrays: list[NDArray[Any]], i: int) -> tuple[int, int]:
    """The references to an array, and to its memory: views of the array refer to the latter."""
    return sys.getrefcount(arrays[i]), sys.getrefcount(arrays[i].base)


_ALONE = _references([aligned_empty((1,), np.uint8)], 0)
"""Those of an array that is in a list and nowhere else."""
