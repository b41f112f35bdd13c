"""Porter's stemmer of 1980 (An algorithm for suffix stripping), with the two changes of its author's own programs:
"bli" becomes "ble", and "logi" becomes "log". Words of one or two letters are unchanged."""

from __future__ import annotations

import re

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
    "logi": "log",
}  # fmt: skip
_STEP_3 = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
}  # fmt: skip
_DROPPED = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"
_STEP_4 = dict.fromkeys(_DROPPED.split(), "")


def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _suffix(word, _STEP_2, 0)
    word = _suffix(word, _STEP_3, 0)
    word = _suffix(word, _STEP_4, 1)
    return _final(word)


def _shape(stem: str) -> str:
    """The stem with v for each vowel and c for each consonant. y is a vowel after a consonant."""
    shape = ""
    for letter in stem:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """Porter's measure: the number of vowels followed by a consonant."""
    return _shape(stem).count("vc")


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _double(stem: str) -> bool:
    """Whether the stem ends in a double consonant."""
    return len(stem) >= 2 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c"


def _short(stem: str) -> bool:
    """Whether the stem ends in consonant, vowel, consonant, and the last is not w, x or y."""
    return _shape(stem).endswith("cvc") and stem[-1] not in "wxy"


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    match = re.search("(?:ed|ing)$", word)
    if match is None or not _has_vowel(word[: match.start()]):
        return word
    stem = word[: match.start()]
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _double(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _short(stem) else stem


def _suffix(word: str, endings: dict[str, str], least: int) -> str:
    """Replace the longest matching ending, if the rest has a measure above `least`."""
    ending = next((word[i:] for i in range(len(word)) if word[i:] in endings), None)
    if ending is None:
        return word
    stem = word[: len(word) - len(ending)]
    if _measure(stem) <= least or (ending == "ion" and not stem.endswith(("s", "t"))):
        return word
    return stem + endings[ending]


def _final(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
