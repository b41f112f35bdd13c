"""The text analyser of the original's search engine: splits a text into terms.

It is Lucene's English analyser as configured by Anserini (both Apache-2.0): words by Unicode's rules (UAX #29,
Unicode 12.1), possessives removed, lower case, 33 stop words, and Porter's stemmer of 1980.

It is held to Lucene's words on all texts of the small official set and on 758 queries, which are Latin with some
Chinese, Japanese and Korean, numbers and emoji. It is known to differ in these cases, which no product there has:

* Hebrew: a quote between or after letters ends the word.
* Thai, Lao, Khmer and Myanmar: their letters are ordinary letters, and form one word with letters and digits of other
  scripts that follow without a space.
* The capital I with a dot (U+0130): in lower case it is "i" with a combining dot.
* Regional indicators are words in pairs, and a single one is a word too.
* Keycaps: "1" to "9" with the sign of a key are numbers, so two without a space are one word. "#" and "*" with it are
  no words.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from crbc_envs.webshop.search.porter import stem

_STOP = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
STOP_WORDS = frozenset(_STOP.split())

MAX_TOKEN = 255
"""In characters. A longer word is cut into pieces."""

_POSSESSIVE = re.compile("['\u2019\uff07][sS]$")


def analyse(text: str) -> list[str]:
    """The terms of a text, in order."""
    return [term for word in words(text) if (term := _term(word)) is not None]


def words(text: str) -> list[str]:
    """The words of a text by UAX #29, without those that have no letter, digit or emoji."""
    if text.isascii():
        tokens = [match[0] for match in _ASCII_WORD.finditer(text) if match[0].strip("_")]
    else:
        classes = text.translate(_CLASSES)
        tokens = [text[match.start() : match.end()] for match in _WORD.finditer(classes)]
    if all(len(word) <= MAX_TOKEN for word in tokens):
        return tokens
    return [word[i : i + MAX_TOKEN] for word in tokens for i in range(0, len(word), MAX_TOKEN)]


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str | None:
    """The term of a word, None for a stop word."""
    lowered = _POSSESSIVE.sub("", word).lower()
    return None if lowered in STOP_WORDS else stem(lowered)


# ---- words ----------------------------------------------------------------------------------------

# A mark between two letters or two digits joins them: "u.s", "men's", "40.00" and "1,000" are one word each.
_ASCII_WORD = re.compile(r"(?:[A-Za-z](?:[.':](?=[A-Za-z]))?|[0-9](?:[.,;'](?=[0-9]))?|_)+")

_LETTER_MARKS = ":\u00b7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a"
_DIGIT_MARKS = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_EITHER_MARKS = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"

# One letter for each class of characters: A letters, N digits, K Katakana, E connectors ("_"), H Han and
# Hiragana, P pictographs, r regional indicators, j the joiner, x other characters that extend the one before;
# l d b marks that join letters, digits or either; o all others.
_X = "[xj]*"
_RUN = f"(?:(?:A{_X}(?:[lb]{_X}(?=A))?|N{_X}(?:[db]{_X}(?=N))?)+|(?:K{_X})+)"
_CONNECTORS = f"(?:E{_X})"
_WORD = re.compile(f"{_CONNECTORS}*{_RUN}(?:{_CONNECTORS}+{_RUN})*{_CONNECTORS}*|H{_X}|P(?:x*jP)*{_X}|rr?{_X}")

_PICTOGRAPHS = (
    "00a9 00ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa 24c2 "
    "25aa-25ab 25b6 25c0 25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271d 2721 2728 "
    "2733-2734 2744 2747 274c 274e 2753-2755 2757 2763-2767 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 "
    "2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f000-1f0ff 1f10d-1f10f 1f12f 1f16c-1f171 1f17e-1f17f 1f18e "
    "1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a 1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f "
    "1f680-1f6ff 1f774-1f77f 1f7d5-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a "
    "1f93c-1f945 1f947-1fffd"
)
"""The code points that are Extended_Pictographic."""

_KATAKANA = "30a1-30fa 30fc-30ff 31f0-31ff 32d0-32fe 3300-3357 ff66-ff9d 3031-3035 309b-309c 30a0"
_HAN = "2e80-2fd5 3005 3007 3021-3029 3038-303b 3041-3096 309d-309f 3400-4dbf 4e00-9fff f900-faff 20000-3134f"


def _numbers(ranges: str) -> frozenset[int]:
    ends = ([int(end, 16) for end in part.split("-")] for part in ranges.split())
    return frozenset(number for end in ends for number in range(end[0], end[-1] + 1))


class _Classes(dict[int, str]):
    """The class of each character, for `str.translate`. It is computed on first use."""

    def __init__(self) -> None:
        super().__init__()
        self._of = [("P", _numbers(_PICTOGRAPHS)), ("K", _numbers(_KATAKANA)), ("H", _numbers(_HAN))]

    def __missing__(self, number: int) -> str:
        self[number] = symbol = self._class(number)
        return symbol

    def _class(self, number: int) -> str:
        char = chr(number)
        for name, marks in (("l", _LETTER_MARKS), ("d", _DIGIT_MARKS), ("b", _EITHER_MARKS)):
            if char in marks:
                return name
        for name, members in self._of:
            if number in members:
                return name
        if 0x1F1E6 <= number <= 0x1F1FF:
            return "r"
        if number in (0x200B, 0x200D):
            return "j" if number == 0x200D else "o"
        category = unicodedata.category(char)
        if category in ("Mn", "Mc", "Me", "Cf") or 0x1F3FB <= number <= 0x1F3FF or number in (0xFF9E, 0xFF9F):
            return "x"
        if category == "Nd":
            return "N"
        if category == "Pc":
            return "E"
        return "A" if category.startswith("L") or category == "Nl" or 0x24B6 <= number <= 0x24E9 else "o"


_CLASSES = _Classes()
