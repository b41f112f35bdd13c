"""One reply that is asked for: its tokens as they arrive, and its text, which ends before a stop text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crbc_rl.batches import Turn


@dataclass(frozen=True, slots=True)
class Scores:
    """The log-probability of each of T tokens, and beside each the most probable ids (T, top) with theirs (T, top)."""

    logprobs: list[float]
    ids: NDArray[np.int32]
    values: NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Row:
    """One reply that is asked for, of at most `most` tokens. It ends before the first text of `stop`.

    With `scored`, tokens are scored after it: those of the reply, with `echo` those of the prompt before them, and
    beside each the `top` most probable. `changed` is set whenever a stream can go on. `done` has a result, None, as
    soon as `tokens`, `logprobs`, `text` and `scores` are whole.
    """

    asked: Turn
    seed: int
    temperature: float
    most: int
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    scored: bool = False
    echo: bool = False
    top: int = 0
    changed: asyncio.Event | None = None
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    turn: int = 0
    """Rows are begun in this order."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    scores: Scores | None = None
    ended: bool = False
    stopped: bool = False
    """It ended by itself, or at a stop text."""
    whole: bool = False
    """Nothing changes any more."""
    _begun: int = 0
    _read: int = 0

    @property
    def together(self) -> tuple[float, float, bool, int]:
        """Rows of one batch have this in common: prompts of similar length, too."""
        return self.temperature, self.top_p, self.most > 0, len(self.asked.prompt).bit_length()

    @property
    def awaited(self) -> bool:
        return not self.done.done()

    def add(self, token: int, logprob: float, eos: int, decode: Callable[[list[int]], str]) -> None:
        """The next token. `decode` gives the text of tokens, without the end token."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.stopped = token == eos
        self.ended = self.stopped or len(self.tokens) == self.most
        if self.stop or self.changed is not None:
            self._write(decode)
        elif self.ended:
            self.text = decode(self.tokens)

    def _write(self, decode: Callable[[list[int]], str]) -> None:
        """Add what the last tokens say, once they are whole characters.

        They are decoded behind those before them: some tokenizers drop a space at the beginning.
        """
        before, text = (decode(self.tokens[self._begun : end]) for end in (self._read, len(self.tokens)))
        if len(text) <= len(before) or (text.endswith("\ufffd") and not self.ended):
            return
        self._begun, self._read = self._read, len(self.tokens)
        start = max(0, len(self.text) - max(map(len, self.stop), default=0))
        whole = self.text + text[len(before) :]
        found = [place for word in self.stop if (place := whole.find(word, start)) >= 0]
        if found:
            whole, self.ended, self.stopped = whole[: min(found)], True, True
        self.text = whole

    def ready(self) -> int:
        """The characters of the text that stay: not those at its end with which a stop text may begin."""
        if self.whole:
            return len(self.text)
        begun = (k for word in self.stop for k in range(1, len(word)) if self.text.endswith(word[:k]))
        return len(self.text) - max(begun, default=0)
