"""Texts of games, recordings, models and servers, as a terminal may print them: all is shown, and nothing acts."""

from __future__ import annotations

import unicodedata

LONGEST = 20_000
"""Characters of a text that are shown."""


def printable(text: str, longest: int = LONGEST) -> str:
    """The text with "\\ufffd" for each character that is none to see.

    Such are control characters, and with them the sequences that move the cursor or change colours; marks that reverse
    the direction of writing; and halves of surrogate pairs. Line ends stay, and tabs and rare blanks become blanks. A
    text of more than `longest` characters is cut and ends with " ...".
    """
    whole = text.replace("\r\n", "\n")
    shown = whole if len(whole) <= longest else f"{whole[:longest]} ..."
    return "".join(symbol if symbol.isprintable() or symbol == "\n" else _instead(symbol) for symbol in shown)


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text in one line, with single blanks, and `printable`."""
    return printable(" ".join(text.split()), longest)


def _instead(symbol: str) -> str:
    return " " if symbol == "\t" or unicodedata.category(symbol) == "Zs" else "\ufffd"
