"""Lone surrogates, which a model or a user may write, and which UTF-8 and so Parquet cannot hold.

In a file each stands as the private character 0x100000 above it. The file's header names the columns where this is so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

SHIFT = 0x100000
_SURROGATE = re.compile("[\ud800-\udfff]")
_STAND_IN = re.compile("[\U0010d800-\U0010dfff]")

Text = TypeVar("Text", str, str | None)


def has_surrogates(texts: Iterable[str | None]) -> bool:
    return any(isinstance(text, str) and not text.isascii() and _SURROGATE.search(text) for text in texts)


def hidden(texts: Sequence[Text]) -> list[Text]:
    """The texts with a private character for each surrogate. Raises `ValueError` where one has that character too."""
    if any(text is not None and _STAND_IN.search(text) for text in texts):
        raise ValueError("it has lone surrogates and the private characters that would stand for them")
    return _moved(texts, _SURROGATE, SHIFT)


def restored(texts: Sequence[Text]) -> list[Text]:
    """The inverse of `hidden`."""
    return _moved(texts, _STAND_IN, -SHIFT)


def _moved(texts: Sequence[Text], what: re.Pattern[str], by: int) -> list[Text]:
    """The texts with the characters of `what` moved. Equal texts become one object, as a file may repeat long ones."""
    moved = {text: text and what.sub(lambda one: chr(ord(one[0]) + by), text) for text in dict.fromkeys(texts)}
    return [moved[text] for text in texts]
