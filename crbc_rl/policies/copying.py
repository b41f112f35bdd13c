"""Copying: lessons and rollouts whose words are replaced by made-up ones.

A model that learns from a few hundred words comes to know them by heart, and fails at words that it never met. What it
must learn is to find a word in its prompt and to copy it. So in some lessons every word of the content is exchanged for
one that does not exist, the same in prompt and reply. Only copying is then right. Reinforcement learning forgets this
again where its tasks have few words, so its rollouts may have made-up words too: prompts are exchanged before the
policy reads them, and its replies are exchanged back before the environment does.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from crbc_rl.errors import ConfigError

FILE = "words.json"
"""Beside a model that was taught with made-up words, so that reinforcement learning can use them too."""

COMMON = 0.05
"""Words in a larger share of the lessons belong to the form of prompts and replies, and stay."""

_WORD = re.compile(r"(?<!\w)[^\W\d_]{3,}(?!\w)")
_CODE = re.compile(r"(?<!\w)(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{6,}(?!\w)", re.IGNORECASE)
"""Letters and digits: the code of a product."""
TRIES = 20
"""Draws of a made-up word that is no other's. Few words may leave none."""
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class MadeUpWords:
    """What is needed to exchange words: the `common` ones, which stay, and the `rare` ones, whose parts make others."""

    def __init__(self, common: Collection[str], rare: Sequence[str]) -> None:
        self.common, self.rare = set(common), list(rare)

    @classmethod
    def of(cls, lessons: Sequence[tuple[str, str]]) -> MadeUpWords:
        """The words of some lessons, pairs of prompt and reply."""
        seen = Counter(word for lesson in lessons for word in {*_words(lesson[0]), *_words(lesson[1])})
        common = {word for word, count in seen.items() if count > COMMON * len(lessons)}
        return cls(common, sorted(set(seen) - common))

    def save(self, folder: Path) -> None:
        data = {"common": sorted(self.common), "rare": self.rare}
        (folder / FILE).write_text(json.dumps(data) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> MadeUpWords:
        """The words that `save` wrote. Raises `ConfigError` for a folder without them."""
        try:
            data = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls(data["common"], data["rare"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"rollout.made_up: {folder} has no readable {FILE}, which `crbc warmstart` writes where its config "
                "says made_up; leave rollout.made_up out, or train such a model first"
            ) from error

    def exchange(self, prompt: str, reply: str, rng: np.random.Generator) -> tuple[str, str]:
        """The lesson with other words and codes."""
        one = Exchange(self, rng)
        return one.made(prompt), one.made(reply)


class Exchange:
    """One made-up word for each rare word and each code that it meets.

    A made-up word is the begin of one rare word and the end of another. Of a code the first half stays.
    """

    def __init__(self, words: MadeUpWords, rng: np.random.Generator) -> None:
        self._words, self._rng = words, rng
        self._made: dict[str, str] = {}
        self._original: dict[str, str] = {}

    def made(self, text: str) -> str:
        """The text with made-up words and codes, the same for the same word in every text."""
        return _CODE.sub(self._code, _WORD.sub(self._word, text))

    def original(self, text: str) -> str:
        """The text with the words that made-up ones stand for. Other words stay."""
        return _WORD.sub(self._back, _CODE.sub(self._back, text))

    def _back(self, match: re.Match[str]) -> str:
        word = self._original.get(match[0].lower())
        if word is None:
            return match[0]
        return word.upper() if match[0].isupper() else word.capitalize() if match[0][0].isupper() else word

    def _word(self, match: re.Match[str]) -> str:
        word, rare = match[0].lower(), self._words.rare
        if word in self._words.common or not rare:
            return match[0]
        if word not in self._made:
            made = word
            for _ in range(TRIES):
                first, last = (rare[i] for i in self._rng.integers(len(rare), size=2))
                made = first[: (len(first) + 1) // 2] + last[len(last) // 2 :]
                if made not in self._words.common and made not in self._original:
                    break
            self._keep(word, made)
        return self._made[word].capitalize() if match[0][0].isupper() else self._made[word]

    def _code(self, match: re.Match[str]) -> str:
        code = match[0].lower()
        if code not in self._made:
            half = len(code) // 2
            drawn = self._rng.integers(len(_CHARACTERS), size=len(code) - half)
            self._keep(code, code[:half] + "".join(_CHARACTERS[i] for i in drawn))
        return self._made[code].upper() if match[0].isupper() else self._made[code]

    def _keep(self, word: str, made: str) -> None:
        self._made[word] = made
        self._original.setdefault(made, word)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
