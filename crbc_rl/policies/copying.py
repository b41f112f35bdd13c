"""Lessons in copying: demonstrations whose words are replaced by made-up ones.

A model that learns from a few hundred words comes to know them by heart, and fails at words that it never met. What it
must learn is to find a word in its prompt and to copy it. So in some lessons every word of the content is exchanged for
one that does not exist, the same in prompt and reply. Only copying is then right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

COMMON = 0.05
"""Words in a larger share of the lessons belong to the form of prompts and replies, and stay."""

_WORD = re.compile(r"(?<!\w)[^\W\d_]{3,}(?!\w)")
_CODE = re.compile(r"(?<!\w)(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{6,}(?!\w)", re.IGNORECASE)
"""Letters and digits: the code of a product."""
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class MadeUpWords:
    """Exchanges words of a lesson. What is common is counted in `lessons`, pairs of prompt and reply."""

    def __init__(self, lessons: Sequence[tuple[str, str]]) -> None:
        seen = Counter(word for lesson in lessons for word in {*_words(lesson[0]), *_words(lesson[1])})
        self.common = {word for word, count in seen.items() if count > COMMON * len(lessons)}
        self.rare = sorted(set(seen) - self.common)

    def exchange(self, prompt: str, reply: str, rng: np.random.Generator) -> tuple[str, str]:
        """The lesson with other words and codes.

        A made-up word is the begin of one rare word and the end of another. Of a code the first half stays.
        """
        made: dict[str, str] = {}

        def other(found: re.Match[str]) -> str:
            word = found[0].lower()
            if word in self.common or not self.rare:
                return found[0]
            if word not in made:
                first, last = (self.rare[i] for i in rng.integers(len(self.rare), size=2))
                made[word] = first[: (len(first) + 1) // 2] + last[len(last) // 2 :]
            return made[word].capitalize() if found[0][0].isupper() else made[word]

        def recoded(found: re.Match[str]) -> str:
            code = found[0].lower()
            if code not in made:
                half = len(code) // 2
                drawn = rng.integers(len(_CHARACTERS), size=len(code) - half)
                made[code] = code[:half] + "".join(_CHARACTERS[i] for i in drawn)
            return made[code].upper() if found[0].isupper() else made[code]

        changed = (_CODE.sub(recoded, _WORD.sub(other, text)) for text in (prompt, reply))
        return next(changed), next(changed)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
