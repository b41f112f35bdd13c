"""Finds the nouns of a title. The reward compares them.

The original uses spaCy's `en_core_web_sm`; so do we if that model is installed. Without it, every word except numbers
and function words counts as a noun. Titles are mostly capitalised nouns. On public traces the fallback finds as many
nouns as the model within a fifth, but not always the same ones: the reward of a product of another type than the
goal's may differ. `info["reward_tagger"]` says which tagger was used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

from crbc_envs.errors import RequirementError, install

MODEL = "en_core_web_sm"
FALLBACK = "fallback"

Nouns = tuple[str, ...]
Tagger = Callable[[str], Nouns]

_WORD = re.compile(r"[^\W\d_](?:[\w]|[.'&](?=\w))*")

_FUNCTION_WORDS = (
    "a about above after against all also an and any are as at be because before below between both but by can "
    "could did do does down during each few for from further had has have he her here him his how i if in into is "
    "it its just may me more most my no nor not of off on once only or other our out over own per plus same shall "
    "she should so some such than that the their them then there these they this those through to too under until "
    "up upon us very via was we were what when where which while who why will with within without would you your"
)
_NO_NOUNS = frozenset(_FUNCTION_WORDS.split())


def make_tagger(name: Literal["auto", "spacy", "fallback"] = "auto") -> tuple[str, Tagger]:
    """A tagger and its name: the spaCy model or "fallback". "auto" uses the model if it is installed.

    Raises `RequirementError` for "spacy" without the model, and `ValueError` for an unknown tagger.
    """
    if name not in ("auto", "spacy", FALLBACK):
        raise ValueError(f"tagger must be one of auto, spacy, fallback; got {name!r}")
    installed = find_spec("spacy") is not None and find_spec(MODEL) is not None
    if name == "spacy" and not installed:
        load = f"{sys.executable} -m spacy download {MODEL}"
        raise RequirementError(f"tagger={name!r}: {MODEL} is not installed: {install('spacy')} && {load}")
    return (MODEL, _spacy_tagger()) if installed and name != FALLBACK else (FALLBACK, fallback_nouns)


def fallback_nouns(title: str) -> Nouns:
    """The words of a title in lower case, without numbers and function words."""
    return tuple(word for word in _WORD.findall(title.lower()) if word not in _NO_NOUNS)


def _spacy_tagger() -> Tagger:
    import spacy

    model = spacy.load(MODEL, disable=["parser", "ner", "lemmatizer"])
    return lambda title: tuple(token.text.lower() for token in model(title) if token.pos_ in ("NOUN", "PROPN"))
