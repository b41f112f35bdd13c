"""What rollouts ask of a policy, and the learner of an engine that samples for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import Tensor

from crbc_envs.prompts import Prompt
from crbc_rl.tokens import Turn


class Policy(Protocol):
    """Prompts in; token ids, log-probabilities and text out."""

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """Sample one reply to each prompt from softmax(logits / temperature), no other filter.

        `seeds` has one integer below 2**63 per prompt: a reply is a function of the weights, its prompt and its
        seed, whatever else is in the batch, up to the rounding of floats.
        """
        ...


class Generator(Policy, Protocol):
    """A policy with weights of its own, which samples on behalf of one that is trained."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take whole tensors, named as in a transformers state dict."""
        ...

    def sleep(self) -> None:
        """Leave the memory to the trainer."""
        ...

    def wake(self) -> None:
        """Take it back; `load_weights` follows."""
        ...
