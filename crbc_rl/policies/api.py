"""What rollouts ask of a policy, and the learner of an engine that samples for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

from torch import Tensor

from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn


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


class Queue(Protocol):
    """Prompts that were put to a policy, and its replies as they come."""

    @property
    def waiting(self) -> int:
        """How many have no reply yet."""
        ...

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        """Put one prompt; `seed` as in `Policy.generate`, `key` is what its reply goes by."""
        ...

    def ready(self) -> list[tuple[int, Turn]]:
        """Go on for a while, and hand out the replies there are: perhaps none, though some are waited for."""
        ...


@runtime_checkable
class Continuous(Policy, Protocol):
    """A policy that does not have to read all prompts of a batch, or end all its replies, at once."""

    def queue(self, temperature: float, max_new_tokens: int) -> AbstractContextManager[Queue]:
        """Where to ask; what has no reply at the end is given up."""
        ...


@contextmanager
def queue_of(policy: Policy, temperature: float, max_new_tokens: int) -> Iterator[Queue]:
    """The queue of any policy. One that is not `Continuous` makes a batch of all that is waiting."""
    if isinstance(policy, Continuous):
        with policy.queue(temperature, max_new_tokens) as queue:
            yield queue
    else:
        yield _Batches(policy, temperature, max_new_tokens)


class _Batches:
    def __init__(self, policy: Policy, temperature: float, max_new_tokens: int) -> None:
        self.policy, self.limits = policy, (temperature, max_new_tokens)
        self.asked: list[tuple[int, Prompt, int]] = []

    @property
    def waiting(self) -> int:
        return len(self.asked)

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        self.asked.append((key, prompt, seed))

    def ready(self) -> list[tuple[int, Turn]]:
        if not self.asked:
            return []
        keys, prompts, seeds = zip(*self.asked, strict=True)
        self.asked = []
        return list(zip(keys, self.policy.generate(prompts, seeds, *self.limits), strict=True))


def answer(queue: Queue, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Turn]:
    """The reply to each prompt, in order, once all are there."""
    for key, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        queue.ask(key, prompt, seed)
    turns: dict[int, Turn] = {}
    while queue.waiting:
        turns |= queue.ready()
    return [turns[key] for key in range(len(prompts))]


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
