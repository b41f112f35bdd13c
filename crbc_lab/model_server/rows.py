"""One reply that is asked for: its tokens as they arrive, and its text, which ends before a stop text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crbc_lab.model_server.requests import Order
from crbc_rl.policies.decoding import Reply


@dataclass(slots=True, eq=False, kw_only=True)
class Row(Reply):
    """One reply of an order. `changed` is set whenever a stream may have more to say. `done` has a result as soon as
    all is `whole`. Where tokens are scored, `logprobs` then has those of the scored ones."""

    order: Order
    changed: asyncio.Event | None = None
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    turn: int = 0
    """Rows are begun in this order."""
    text: str = ""
    """It begins with what the chat template has opened."""
    best: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None
    """Beside each token that is scored, the most probable ids and their log-probabilities, (T, top) each."""
    stopped: bool = False
    """It ended by itself, or at a stop text."""
    whole: bool = False
    _begun: int = 0
    _read: int = 0

    @property
    def together(self) -> tuple[float, float, bool, bool, int]:
        """Rows of one batch have this in common: prompts of similar length, too."""
        asked, length = self.order.fields, (len(self.asked.prompt) >> 8).bit_length()
        return asked.temperature, asked.top_p, self.most > 0, bool(self.asked.images), length

    @property
    def size(self) -> int:
        """The positions that it may take."""
        return len(self.asked.prompt) + self.most

    @property
    def awaited(self) -> bool:
        return not self.done.done()

    def write(self, ends: Collection[int], decode: Callable[[list[int]], str]) -> None:
        """Write what the last token says. `decode` gives the text of tokens, without the end token."""
        self.stopped = self.tokens[-1] in ends
        if self.order.stop or self.changed is not None:
            self._write(decode)
        elif self.ended:
            self.text += decode(self.tokens)
        self.whole = self.ended and not self.order.scored

    def _write(self, decode: Callable[[list[int]], str]) -> None:
        """Add what the last tokens say, once they are whole characters.

        They are decoded behind those before them: some tokenizers drop a space at the beginning.
        """
        before, text = (decode(self.tokens[self._begun : end]) for end in (self._read, len(self.tokens)))
        if len(text) <= len(before) or (text.endswith("\ufffd") and not self.ended):
            return
        self._begun, self._read = self._read, len(self.tokens)
        start = max(0, len(self.text) - max(map(len, self.order.stop), default=0))
        whole = self.text + text[len(before) :]
        found = [place for word in self.order.stop if (place := whole.find(word, start)) >= 0]
        if found:
            whole, self.ended, self.stopped = whole[: min(found)], True, True
        self.text = whole

    def ready(self) -> int:
        """The characters of the text that stay: not those at its end with which a stop text may begin."""
        if self.whole:
            return len(self.text)
        begun = (k for word in self.order.stop for k in range(1, len(word)) if self.text.endswith(word[:k]))
        return len(self.text) - max(begun, default=0)
