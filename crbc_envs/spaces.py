"""A text space for any text. `gymnasium.spaces.Text` is alphanumeric by default and refuses "#" and spaces.

It is registered with Gymnasium's vector environments, whose worker processes hand over text in shared memory.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory


class UnicodeText(Space[str]):
    """All strings of at most `max_length` characters. `sample` draws one of `examples`.

    Uniformly drawn text would never be a meaningful action. `examples` are therefore actions or observations
    of the environment. Without examples, a sample has up to 32 printable ASCII characters.
    """

    def __init__(
        self,
        examples: Sequence[str] = (),
        max_length: int = 1_000_000,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        self.examples = tuple(examples)
        self.max_length = max_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        if self.examples:
            return self.examples[self.np_random.integers(len(self.examples))]
        length = self.np_random.integers(33)
        return bytes(self.np_random.integers(32, 127, size=length, dtype=np.uint8)).decode("ascii")

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and (self.examples, self.max_length) == (other.examples, other.max_length)

    def __repr__(self) -> str:
        return f"UnicodeText(max_length={self.max_length})"


def holds_text(space: Space[Any]) -> bool:
    """Whether the elements of a space are texts."""
    return space.dtype is not None and space.dtype.kind == "U"


# ---- shared memory, as Gymnasium's AsyncVectorEnv asks for it ---------------------------------------

_HEAD, _WIDEST = 8, 4
"""Bytes of a text's length, which stands before it, and of one character in UTF-8 at most."""


class SharedTexts(Sequence[str]):
    """The texts of n environments in shared memory, read anew at each access. A deep copy is a tuple, and stays."""

    def __init__(self, memory: SynchronizedArray[int], n: int) -> None:
        self._bytes = memoryview(memory.get_obj()).cast("B")
        self._places = range(0, len(self._bytes), len(self._bytes) // n)

    def write(self, index: int, value: str) -> None:
        text, at = value.encode("utf-8", "surrogatepass"), self._places[index]
        self._bytes[at : at + _HEAD + len(text)] = len(text).to_bytes(_HEAD, "little") + text

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        at = self._places[index] + _HEAD
        length = int.from_bytes(self._bytes[at - _HEAD : at], "little")
        return bytes(self._bytes[at : at + length]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: Any) -> tuple[str, ...]:
        return tuple(self)


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("B", n * (_HEAD + _WIDEST * space.max_length))


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: SynchronizedArray[int], n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, n)


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: SynchronizedArray[int]) -> None:
    n = len(shared_memory) // (_HEAD + _WIDEST * space.max_length)
    SharedTexts(shared_memory, n).write(index, value)
