"""Replies that a policy of the transformers library samples together, a token of each at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from crbc_rl.batches import Reply, Turn
from crbc_rl.policies.prefixes import joined

Read = tuple[Tensor, DynamicCache, Tensor | None, Tensor]
"""What was read of n rows: see `TransformersPolicy.read`."""


class Model(Protocol):
    """What decoding needs of a `TransformersPolicy`."""

    eos: int

    def read(self, asked: Sequence[Turn]) -> Read: ...
    def read_on(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, cache: DynamicCache) -> Tensor: ...
    def scores(self, logits: Tensor, temperature: float) -> Tensor: ...


R = TypeVar("R", bound=Reply)


class Decoding(Generic[R]):
    """`replies` that share each forward pass of a policy; others may join them. Those that have ended are dropped when
    they are half of all."""

    def __init__(self, policy: Model, temperature: float, top_p: float = 1.0) -> None:
        self.policy, self.temperature, self.top_p = policy, temperature, top_p
        self.replies: list[R] = []
        self._drawn: Tensor | None = None  # tokens (n, 1) that are not read yet
        self._read: Read

    @torch.no_grad()
    def join(self, replies: Sequence[R]) -> None:
        """Read the prompts of replies, which go on with the others. Beside others all layers attend to all tokens."""
        self._read_on(1)
        before, self._read = self._read if self.replies else None, self.policy.read([one.asked for one in replies])
        self.replies += replies
        if before is not None:
            lengths = torch.tensor([[len(one.asked.prompt) + len(one.tokens)] for one in self.replies])
            width = int(lengths.max())
            mask = (torch.arange(width) >= width - lengths).long().to(before[0].device)
            (logits, cache, _, position), (more, other, _, places) = before, self._read
            cache = joined(cache, other, width)
            self._read = torch.cat([logits, more]), cache, mask, torch.cat([position, places], dim=-2)

    @torch.no_grad()
    def step(self) -> list[R]:
        """Draw a token of each reply that has not ended: these replies, and none where all have. Its log-probability is
        that before `top_p` cuts improbable tokens off."""
        self._read_on(2)
        if not self.replies:
            return []
        scores = self.policy.scores(self._read[0], self.temperature)
        uniforms = torch.from_numpy(np.array([[one.random.random()] for one in self.replies])).to(scores.device)
        self._drawn = draw(scores if self.top_p == 1 else nucleus(scores, self.top_p), uniforms)
        drawn = zip(self.replies, self._drawn[:, 0].tolist(), scores.gather(1, self._drawn)[:, 0].tolist(), strict=True)
        going = [(reply, token, logprob) for reply, token, logprob in drawn if not reply.ended]
        for reply, token, logprob in going:
            reply.tokens.append(token)
            reply.logprobs.append(logprob)
            reply.ended |= token == self.policy.eos or len(reply.tokens) == reply.most
        return [reply for reply, _, _ in going]

    def _read_on(self, part: int) -> None:
        """Read what was drawn. Before it, replies that have ended are dropped where no more than one `part` of all is
        left: each time costs a copy of the cache."""
        if self._drawn is None:
            return
        (_, cache, mask, position), drawn, self._drawn = self._read, self._drawn, None
        left = [place for place, reply in enumerate(self.replies) if not reply.ended]
        if len(left) <= len(self.replies) // part:
            self.replies = [self.replies[place] for place in left]
            cache.batch_select_indices(kept := torch.tensor(left, dtype=torch.long, device=drawn.device))
            drawn, mask, position = drawn[kept], None if mask is None else mask[kept], position[..., kept, :]
        if left:
            mask = None if mask is None else torch.cat([mask, torch.ones_like(drawn)], dim=1)
            self._read = self.policy.read_on(drawn, mask, position, cache), cache, mask, position + 1


def draw(scores: Tensor, uniforms: Tensor) -> Tensor:
    """Sample one token id per row, (B, 1), by inverting the cumulated probabilities.

    `scores` (B, V) are log-probabilities, `uniforms` (B, 1) random numbers in [0, 1). The sum is in double precision,
    since a vocabulary of 150,000 adds up many small numbers.
    """
    cumulated = scores.double().exp().cumsum(dim=-1)
    last = cumulated.shape[-1] - 1
    return torch.searchsorted(cumulated, uniforms * cumulated[:, -1:], right=True).clamp(max=last)


def nucleus(scores: Tensor, top_p: float) -> Tensor:
    """The log-probabilities `scores` (B, V), -inf for all but the most probable tokens that have `top_p` together."""
    ordered, ids = scores.sort(dim=-1, descending=True, stable=True)
    shares = ordered.double().exp()
    beyond = shares.cumsum(dim=-1) - shares >= top_p
    return scores.masked_fill(torch.empty_like(beyond).scatter(1, ids, beyond), -torch.inf)
