"""The protocols of policies and of sampling engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from torch import Tensor

from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn


class Policy(Protocol):
    """Maps prompts to replies: token ids, log-probabilities and text."""

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """Sample one reply to each of `prompts` from softmax(logits / `temperature`), without top-k or top-p.

        `seeds` has one integer below 2**63 per prompt. A reply has at most `max_new_tokens` tokens. It is a function of
        the weights, its prompt and its seed, up to the rounding of floats, and not of the rest of the batch.
        """
        ...


class Queue(Protocol):
    """Takes prompts at any time and returns replies as they are finished."""

    @property
    def waiting(self) -> int:
        """The number of prompts without a reply."""
        ...

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        """Queue one prompt. `key` identifies its reply; `seed` is as in `Policy.generate`."""
        ...

    def ready(self) -> list[tuple[int, Turn]]:
        """Run for a while and return the finished replies with their keys. The list may be empty."""
        ...


@runtime_checkable
class Continuous(Policy, Protocol):
    """A policy with continuous batching: prompts may be added, and replies returned, one by one."""

    def queue(self, temperature: float, max_new_tokens: int) -> AbstractContextManager[Queue]:
        """A queue. Leaving the context aborts the prompts without a reply."""
        ...


def answer(queue: Queue, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Turn]:
    """Queue all prompts, wait for all replies, and return them in order."""
    for key, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        queue.ask(key, prompt, seed)
    turns: dict[int, Turn] = {}
    while queue.waiting:
        turns |= queue.ready()
    return [turns[key] for key in range(len(prompts))]


class Generator(Policy, Protocol):
    """A sampling engine: a policy with its own copy of the trained weights."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Load full tensors, named as in a transformers state dict."""
        ...

    def sleep(self) -> None:
        """Release GPU memory for training."""
        ...

    def wake(self) -> None:
        """Allocate the memory again. `load_weights` must follow."""
        ...
