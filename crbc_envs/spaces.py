"""A text space for any text. `gymnasium.spaces.Text` is alphanumeric by default and refuses "#" and spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space


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
