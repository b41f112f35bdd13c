"""Reads what a shopper is asked for: "Find me A shampoo with C with scent: x, and price lower than 30.00 dollars"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_CAP = re.compile(r",? and price lower than (\d+(?:\.\d+)?) dollars\s*$")
_OPTIONS = re.compile(r" with (\w+(?: \w+){0,2}: .*)$")
_NEXT_OPTION = re.compile(r", and (?=\w+(?: \w+){0,2}: )")
_CHATTER = frozenset(
    re.findall(
        r"\S+",
        "a about am an and any are as be can could find for from get give have hello hi i i'd i'm in is it item its "
        "like look looking make me my need of or pair please product purchase search should show some sold something "
        "that the them this to us want was which with would you size color style flavor scent",
    )
)
"""Words that say nothing of the product."""


@dataclass(frozen=True, slots=True)
class Request:
    """`ask` is the sentence without options and price, `words` its telling words, `options` what the sentence
    says by name ("scent" -> "x"), `cap` the price in dollars that must not be passed, or None."""

    ask: str
    words: tuple[str, ...]
    options: dict[str, str]
    cap: float | None

    @property
    def query(self) -> str:
        """What to type into the search bar."""
        return " ".join([*self.words, *self.options.values()])

    def affords(self, prices: Sequence[float]) -> bool:
        """Whether a price, or the middle of a range, stays under the cap."""
        return self.cap is None or sum(prices) <= self.cap * len(prices)

    def coverage(self, text: str) -> float:
        """The share of the telling words that a text has."""
        known = {_stem(word) for word in split_words(text)}
        return sum(_stem(word) in known for word in self.words) / max(len(self.words), 1)

    def choose(self, group: str, values: Sequence[str]) -> str | None:
        """The value of an option group that is asked for. Where the sentence names no options, it is the
        longest value the sentence has, whole; None if there is none."""
        if self.options:
            wanted = self.options.get(group)
            return wanted if wanted in values else None
        said = [value for value in values if re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", self.ask.lower())]
        return max(said, key=len, default=None)


def read_request(sentence: str) -> Request:
    cap = _CAP.search(sentence)
    ask = sentence[: cap.start()] if cap else sentence
    options: dict[str, str] = {}
    named = _OPTIONS.search(ask)
    if named:
        ask = ask[: named.start()]
        options = dict(part.split(": ", 1) for part in _NEXT_OPTION.split(named[1]))
    words = dict.fromkeys(word for word in split_words(ask) if word not in _CHATTER)
    return Request(ask, tuple(words), options, float(cap[1]) if cap else None)


def split_words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+(?:[.'][a-z0-9]+)*", text.lower())


def _stem(word: str) -> str:
    """Enough for "leggings" and "washable" to meet "legging" and "wash"."""
    for ending in ("able", "ing", "'s", "es", "s", "e"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)]
    return word
