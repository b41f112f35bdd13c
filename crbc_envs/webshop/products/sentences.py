"""Fills the sentence patterns of `words/sentences.toml` with the words of `words/lexicon.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from crbc_envs.webshop.products.draws import Draws

_SLOT = re.compile(r"{(\w+)}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
_IRREGULAR = {"knife": "knives", "mouse": "mice", "tooth": "teeth", "foot": "feet", "child": "children", "man": "men"}
_LEAST, _MOST = 2, 60

Pattern = tuple[tuple[str, str, str, bool], ...]
"""A sentence in parts: the text before a slot, the slot's list of words, the form, and whether it has a capital."""


def sentence(draws: Draws, pattern: Pattern, words: Mapping[str, str | Sequence[str]]) -> str:
    """Fill a pattern. A slot is taken from `words`, a text or a list to draw from, else from the lexicon."""
    said = []
    for before, slot, form, capital in pattern:
        said.append(before)
        if slot == "n":
            said.append(str(draws.between(_LEAST, _MOST)))
        elif slot:
            choices = words.get(slot) or lexicon()[slot]
            word = choices if isinstance(choices, str) else draws.pick(choices)
            word = _FORMS[form](word) if form else word
            said.append(word[0].upper() + word[1:] if capital else word)
    return _ARTICLE.sub(r"\1n ", "".join(said))


@cache
def patterns(use: str, part: str) -> tuple[Pattern, ...]:
    """The patterns of `sentences.toml` for a use ("bullet") and a part of it ("any")."""
    return tuple(map(_compiled, table("sentences")[use][part]))


@cache
def lexicon() -> dict[str, tuple[str, ...]]:
    """The words by the part they play: "person" -> ("accountant", ...)."""
    return {part: tuple(words.split()) for part, words in table("lexicon").items()}


def table(name: str) -> dict[str, Any]:
    """A file of `words/`, parsed."""
    return tomllib.loads((files("crbc_envs.webshop.products") / "words" / f"{name}.toml").read_text(encoding="utf-8"))


def plural(noun: str) -> str:
    """ "brush" becomes "brushes"."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun.endswith(("shelf", "leaf", "loaf", "calf", "scarf")):
        return f"{noun[:-1]}ves"
    return _with_s(noun)


def _with_s(word: str) -> str:
    if re.search("[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def _with_ending(verb: str, ending: str) -> str:
    """ "wrap" becomes "wrapped" and "wrapping"; "dry", "dried" and "drying"."""
    if verb.endswith("e"):
        return verb[:-1] + ending
    if ending == "ed" and re.search("[^aeiou]y$", verb):
        return f"{verb[:-1]}ied"
    short = re.fullmatch("[^aeiou]*[aeiou][^aeiouwxy]", verb)
    return verb + (verb[-1] if short else "") + ending


_FORMS = {
    "s": plural,
    "verbs": _with_s,
    "verbed": lambda verb: _with_ending(verb, "ed"),
    "verbing": lambda verb: _with_ending(verb, "ing"),
}


def _compiled(text: str) -> Pattern:
    pieces = _SLOT.split(text)
    return tuple((before, *_read_slot(slot)) for before, slot in zip(pieces[::2], [*pieces[1::2], ""], strict=True))


def _read_slot(slot: str) -> tuple[str, str, bool]:
    """The list, the form and the capital of a slot: "Things" is ("thing", "s", True)."""
    name = slot.lower()
    if name in ("verbs", "verbed", "verbing"):
        return "verb", name, slot != name
    if name.endswith("s") and name[:-1] in (*lexicon(), "thing"):
        return name[:-1], "s", slot != name
    return name, "", slot != name
