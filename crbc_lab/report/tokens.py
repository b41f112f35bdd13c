"""The tokens of replies, as a reader sees them: their texts, and what the optimizer step saw that trained them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from crbc_envs.storage.files import read_json
from crbc_envs.storage.rollouts import RecordedTurn
from crbc_lab.report.estimators import plain, signed

MOST = 20_000
"""The most tokens of a page that is one file."""

PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = {chr(byte): byte for byte in PLAIN}
BYTES |= {chr(256 + i): byte for i, byte in enumerate(byte for byte in range(256) if byte not in PLAIN)}
"""What byte-level vocabularies, such as those of GPT-2, Qwen2 and SmolLM2, write for each byte."""

Row = list[str]


def rows_of(turn: RecordedTurn, run: Path) -> list[Row]:
    """A row for each token of a reply that was watched in training: its text, the log-probability when it was sampled
    and at its optimizer step, ratio, advantage, and "clipped" or "". `run` is the folder of the run that played it."""
    if not turn.ratios:
        return []
    names = vocabulary(run / "model" / "tokenizer.json")
    numbers = zip(turn.logprobs, turn.trained, turn.ratios, strict=False)
    ends = zip(turn.advantages, turn.clipped, strict=False)
    return [
        [
            names.get(token, f"token {token}"),
            *(plain(number, 3) for number in told),
            signed(advantage, 3),
            "clipped" if clipped else "",
        ]
        for token, told, (advantage, clipped) in zip(turn.reply_ids, numbers, ends, strict=False)
    ]


@lru_cache(maxsize=8)
def vocabulary(tokenizer: Path) -> Mapping[int, str]:
    """The text of each token of a Hugging Face tokenizer; empty where the file is not there, or has another form."""
    try:
        told = read_json(tokenizer)
        known = {number: _text(token) for token, number in told["model"]["vocab"].items()}
        return known | {added["id"]: added["content"] for added in told["added_tokens"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _text(token: str) -> str:
    if all(letter in BYTES for letter in token):
        return bytes(BYTES[letter] for letter in token).decode(errors="replace")
    return token.replace("▁", " ")
