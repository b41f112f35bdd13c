"""Frames go from a worker to the process that uses it through memory that the two share.

The memory has no name: nothing of it is in `/dev/shm`, whose size does not matter, and it is freed with the last of
the two processes. A result is pickled without its large arrays, which are in the memory one after another. The receiver
reads them into arrays of its own, so that the next result changes none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

_LARGE = 4096
"""Bytes from which an array goes through the memory."""


def new_memory() -> int | None:
    """A file descriptor of new shared memory. None where memory needs a name: frames are then sent like the rest."""
    return os.memfd_create("crbc frames") if sys.platform == "linux" else None


def lend(result: Any, memory: int | None) -> tuple[bytes, list[int]]:
    """A pickle of the result, and the sizes of those of its arrays that are in `memory`, if it has room for them."""
    large: list[memoryview] = []

    def inside(array: Any) -> bool:
        if array.raw().nbytes >= _LARGE:
            large.append(array.raw())
        return array.raw().nbytes < _LARGE

    if memory is not None:
        with suppress(OSError):  # no room
            pickled, end = _pickled(result, inside), 0
            for array in large:
                rest = array
                while rest:
                    written = os.pwrite(memory, rest, end)
                    rest, end = rest[written:], end + written
            return pickled, [array.nbytes for array in large]
    return _pickled(result), []


def _pickled(result: Any, inside: Callable[[Any], bool] | None = None) -> bytes:
    """As a connection pickles it, but for the arrays that are not `inside`."""
    file = BytesIO()
    ForkingPickler(file, 5, True, inside).dump(result)
    return file.getvalue()


def take(pickled: bytes, sizes: Sequence[int], memory: int | None) -> Any:
    """The result that was lent, with its arrays."""
    arrays, offset = [np.empty(size, dtype=np.uint8) for size in sizes], 0
    for array in arrays:
        rest = array.data
        while rest:
            assert memory is not None
            read = os.preadv(memory, [rest], offset)
            if not read:
                raise EOFError("the shared memory ends before the frames do")
            rest, offset = rest[read:], offset + read
    return ForkingPickler.loads(pickled, buffers=arrays)
