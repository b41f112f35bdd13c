"""Frames go from a worker to the process that uses it through memory that the two share.

The memory has no name: nothing of it is in `/dev/shm`, whose size does not matter, and it is freed with the last of
the two processes. A result is sent with the places of its frames instead of the frames. The receiver reads them into
arrays of its own, so that the next result changes none of them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_envs.core import Outcome

_LARGE = 4096
"""Bytes from which an array goes through the memory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array is in the memory."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def new_memory() -> int | None:
    """A file descriptor of new shared memory. None where memory needs a name: frames are then sent like the rest."""
    return os.memfd_create("crbc frames") if sys.platform == "linux" else None


def lend(result: Any, memory: int | None) -> Any:
    """A result to send: its frames are in `memory`, if there is one and it has room."""
    if memory is None:
        return result
    try:
        if isinstance(result, Outcome):
            return replace(result, observations=_Writer(memory).store(result.observations))
        return _Writer(memory).store(result)
    except OSError:  # no room
        return result


def take(result: Any, memory: int | None) -> Any:
    """The result that was lent, with its frames."""
    if memory is None:
        return result
    if isinstance(result, Outcome):
        return replace(result, observations=_fetch(result.observations, memory))
    return _fetch(result, memory)


class _Writer:
    """Writes arrays into the memory one after another."""

    def __init__(self, memory: int) -> None:
        self.memory, self.end = memory, 0

    def store(self, value: Any) -> Any:
        """The value with its large arrays replaced by their places."""
        if type(value) is np.ndarray and value.nbytes >= _LARGE and not value.dtype.hasobject:
            return self._write(np.ascontiguousarray(value))
        if type(value) in (list, tuple):
            return type(value)(self.store(part) for part in value)
        if type(value) is dict:
            return {name: self.store(part) for name, part in value.items()}
        return value

    def _write(self, array: NDArray[Any]) -> Place:
        place = Place(self.end, array.shape, array.dtype)
        rest = array.reshape(-1).view(np.uint8).data
        while rest:
            written = os.pwrite(self.memory, rest, self.end)
            rest, self.end = rest[written:], self.end + written
        return place


def _fetch(value: Any, memory: int) -> Any:
    """The value with the arrays instead of their places."""
    if type(value) is Place:
        array = np.empty(value.shape, dtype=value.dtype)
        rest, offset = array.reshape(-1).view(np.uint8).data, value.offset
        while rest:
            read = os.preadv(memory, [rest], offset)
            if not read:
                raise EOFError("the shared memory ends before the frames do")
            rest, offset = rest[read:], offset + read
        return array
    if type(value) in (list, tuple):
        return type(value)(_fetch(part, memory) for part in value)
    if type(value) is dict:
        return {name: _fetch(part, memory) for name, part in value.items()}
    return value
