"""`ConfigError`, which most commands raise, the hint at the nearest known name, and what no message may show."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

SHORTEST_SECRET = 4
"""Characters. Anything shorter is in every text."""

_USER = re.compile(r"(/\\{,4}/)[^\s/]{1,1000}@")
"""The user and password of an address."""

BREAK = r"\s{,4}+"
"""Between the characters of a secret that was broken into lines."""

_secrets: dict[str, re.Pattern[str]] = {}


class ConfigError(ValueError):
    """A config, a run folder or a model folder is wrong or missing.

    The message names the file or key, what is wrong, and what to change. The `crbc` command prints it without a
    traceback and exits with status 2.
    """


class RankError(RuntimeError):
    """A rank that trains beside this one has ended, or does not answer."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of a message about an unknown name: the nearest known one, or all of them if none is near."""
    by_lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else f"; known: {', '.join(sorted(by_lower.values()))}"


def keep_secret(text: str) -> None:
    """From now on, `redacted` removes this text, such as an API key or a password."""
    if len(text) >= SHORTEST_SECRET and text not in _secrets:
        spelt = [map(re.escape, text), map(_any_form, text), *(map(re.escape, code) for code in _base64_of(text))]
        _secrets[text] = re.compile("|".join(map(BREAK.join, spelt)))


def redacted(text: str) -> str:
    """The text with "[key]" for every secret, and for the user and password of an address.

    A secret is found as it is, with the escapes of JSON, URLs, HTML and Python, inside of base64, and broken by blanks.
    """
    for pattern in _secrets.values():
        text = pattern.sub("[key]", text)
    return _USER.sub(r"\1[key]@", text)


def _any_form(symbol: str) -> str:
    """A pattern of a character or one of its escapes, the longest that fits: it tries no other later (`(?>`)."""
    code = ord(symbol)
    escapes = rf"%(?:25){{,4}}{code:02x}", rf"\\{{1,4}}(?:u00|x){code:02x}", rf"&#0?{code};", rf"&#x0?{code:x};"
    named = re.escape(html.escape(symbol))
    return rf"(?>(?i:{'|'.join(escapes)})|{named}|\\{{,4}}{re.escape(symbol)})"


def _base64_of(text: str) -> Iterator[str]:
    """What every base64 code of a longer text with this one inside has, by where it begins there."""
    for before in range(3):
        bits = (before + len(text.encode())) * 8
        code = base64.b64encode(b" " * before + text.encode()).decode()
        whole = code[-(-before * 8 // 6) : bits // 6]
        yield from (whole, whole.replace("+", "-").replace("/", "_"))
