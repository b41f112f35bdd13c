"""A text space for any text. `gymnasium.spaces.Text` is alphanumeric by default and refuses "#" and spaces.

It is registered with Gymnasium's vector environments, whose worker processes hand over text in shared memory.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Sequence
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


@read_from_shared_memory.register(UnicodeText)
class SharedTexts(Sequence[str]):
    """The texts of n environments, read anew from shared memory at each access. A deep copy is a tuple, and stays.

    Each has one character more than its space, the first one, whose number is the length of the text.
    """

    def __init__(self, space: UnicodeText, shared_memory: Any, n: int = 1) -> None:
        self.characters, self.starts = shared_memory.get_obj(), range(0, len(shared_memory), 1 + space.max_length)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Any) -> Any:
        at = self.starts[index] + 1
        return self.characters[at : at + ord(self.characters[at - 1])]

    def __deepcopy__(self, memo: Any) -> tuple[str, ...]:
        return tuple(self)


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array(ctypes.c_wchar, n * (1 + space.max_length))


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: Any) -> None:
    at = index * (1 + space.max_length)
    shared_memory.get_obj()[at : at + 1 + len(value)] = chr(len(value)) + value
