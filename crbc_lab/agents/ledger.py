"""Keeps every call of a run: its answer, which is never bought twice, and what it cost."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbc_envs.chat import messages
from crbc_envs.prompts import Prompt
from crbc_envs.storage.files import append_line
from crbc_lab.agents.config import AgentsConfig, PricesSection
from crbc_lab.agents.journal import read_journal

MILLION = 1_000_000
PER_TOKEN = 4
"""Characters of a token, where a server does not count them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended: with a text, or with the reason of its failure.

    `tokens_in` and `tokens_out` are the server's counts; without `counted`, they are estimated from the characters.
    `faults` has the number of requests without an answer by kind, each of which was repeated but perhaps the last.
    `seconds` is how long the call took, `finish_reason` what the server says of the text's end.
    """

    text: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    counted: bool = True
    faults: Mapping[str, int] = field(default_factory=dict)
    failure: str = ""
    seconds: float = 0.0
    finish_reason: str | None = None

    @property
    def retries(self) -> int:
        return max(0, sum(self.faults.values()) - bool(self.failure))


def estimate(prompt: Prompt, text: str) -> tuple[int, int]:
    """The tokens of a prompt and of a reply, about."""
    before = len(prompt.text) + len(prompt.system or "")
    return -(-before // PER_TOKEN), -(-len(text) // PER_TOKEN)


@dataclass(slots=True)
class Spent:
    """The sums over calls. `estimated` is the number of calls whose tokens the server did not count."""

    calls: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    retries: int = 0
    estimated: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, answer: Answer) -> None:
        self.calls += 1
        self.failed += bool(answer.failure)
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self.retries += answer.retries
        self.estimated += not answer.counted
        self.faults.update(answer.faults)

    def cost(self, prices: PricesSection) -> float:
        """In the currency of `prices`."""
        return (self.tokens_in * prices.input + self.tokens_out * prices.output) / MILLION

    def to_dict(self, prices: PricesSection) -> dict[str, Any]:
        names = ("calls", "failed", "tokens_in", "tokens_out", "retries", "estimated")
        sums = {name: getattr(self, name) for name in names}
        return {**sums, "faults": dict(sorted(self.faults.items())), "cost": self.cost(prices)}


class Ledger:
    """The calls of a run folder, `calls.jsonl`: the cache of its answers and the account of its costs."""

    def __init__(self, path: Path, config: AgentsConfig) -> None:
        self.config = config
        self.spent = Spent()
        self.asked = self.from_cache = 0
        """Calls of this process that were sent, and those that were answered from the file."""
        self._path = path
        self._answers: dict[str, Answer] = {}
        for record in read_journal(path):
            if {"key", "text"} <= record.keys() <= {"key", *Answer.__slots__}:
                self._keep(record.pop("key"), Answer(**record))

    def key(self, prompt: Prompt, seed: int, call: int) -> str:
        """The name of a call: a digest of the model, the messages, the sampling options, the seed and its number."""
        model = self.config.model
        sampling = [model.temperature, model.max_tokens, model.options]
        content = json.dumps([model.name, messages(prompt), sampling, seed, call], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def known(self, key: str) -> Answer | None:
        """The answer to a call that was made before; None where there is none."""
        answer = self._answers.get(key)
        self.from_cache += answer is not None
        return answer

    def record(self, key: str, answer: Answer) -> None:
        """Keep how a call ended, before anything follows from it."""
        fields = {name: getattr(answer, name) for name in Answer.__slots__}
        append_line(self._path, {"key": key, **fields, "faults": dict(answer.faults)})
        self.asked += 1
        self._keep(key, answer)

    def exhausted(self) -> str:
        """Which budget is spent, in words; empty while there is one."""
        limits, prices = self.config.limits, self.config.prices
        tokens, money = self.spent.tokens_in + self.spent.tokens_out, self.spent.cost(prices)
        if limits.tokens is not None and tokens >= limits.tokens:
            return f"limits.tokens: {tokens:,} of {limits.tokens:,} tokens are spent"
        if limits.money is not None and money >= limits.money:
            return f"limits.money: {money:.2f} of {limits.money:.2f} {prices.currency} are spent"
        return ""

    def _keep(self, key: str, answer: Answer) -> None:
        self.spent.add(answer)
        if not answer.failure:  # a call that failed is made again
            self._answers[key] = answer
