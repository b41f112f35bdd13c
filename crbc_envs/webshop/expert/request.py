"""Parses an instruction: "Find me A shampoo with C with scent: x, and price lower than 30.00 dollars"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_CAP = re.compile(r",? and price lower than (\d+(?:\.\d+)?) dollars\s*$")
_OPTIONS = re.compile(r" with (\w+(?: \w+){0,2}: .*)$")
_NEXT_OPTION = re.compile(r", and (?=\w+(?: \w+){0,2}: )")
_STOP_WORDS = frozenset(
    re.findall(
        r"\S+",
        "a about am an and any are as be can could find for from get give have hello hi i i'd i'm in is it item its "
        "like look looking make me my need of or pair please product purchase search should show some sold something "
        "that the them this to us want was which with would you size color style flavor scent",
    )
)
"""Words that do not describe the product."""


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed instruction.

    `sentence` is the whole without its price, `ask` without its options too. `words` are its keywords, `options` the
    options by name ("scent" -> "x"), and `cap` is the maximum price in dollars, or None.
    """

    sentence: str
    ask: str
    words: tuple[str, ...]
    options: dict[str, str]
    cap: float | None

    @property
    def query(self) -> str:
        """The keywords and the options, for the search bar."""
        return " ".join([*self.words, *self.options.values()])

    def affords(self, prices: Sequence[float]) -> bool:
        """Whether a price, or the middle of a price range, is at most the cap."""
        return self.cap is None or sum(prices) <= self.cap * len(prices)

    def coverage(self, text: str) -> float:
        """The fraction of the keywords that occur in a text."""
        known = {_stem(word) for word in split_words(text)}
        return sum(_stem(word) in known for word in self.words) / max(len(self.words), 1)

    def choose(self, group: str, values: Sequence[str]) -> str | None:
        """The requested value of an option group, or None.

        If the sentence names no options, it is the longest value that occurs in the sentence as a whole.
        """
        if self.options:
            asked = self.options.get(group)
            return asked if asked in values else None
        named = [value for value in values if re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", self.ask.lower())]
        return max(named, key=len, default=None)


def read_request(sentence: str) -> Request:
    cap = _CAP.search(sentence)
    ask = whole = sentence[: cap.start()] if cap else sentence
    options: dict[str, str] = {}
    named = _OPTIONS.search(ask)
    if named:
        ask = ask[: named.start()]
        options = dict(part.split(": ", 1) for part in _NEXT_OPTION.split(named[1]))
    words = dict.fromkeys(word for word in split_words(ask) if word not in _STOP_WORDS)
    return Request(whole.lower(), ask, tuple(words), options, float(cap[1]) if cap else None)


def split_words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+(?:[.'][a-z0-9]+)*", text.lower())


def _stem(word: str) -> str:
    """A simple stem, so that "leggings" matches "legging" and "washable" matches "wash"."""
    for ending in ("able", "ing", "'s", "es", "s", "e"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)]
    return word
