"""Replies that a policy of the transformers library samples together, a token of each at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache

from crbc_rl.batches import Turn
from crbc_rl.policies.prefixes import joined

BLOCK = 256
"""Tokens whose probabilities are added up before a draw looks among them."""

Read = tuple[Tensor, DynamicCache, Tensor | None, Tensor]
"""What was read of n rows: see `TransformersPolicy.read`."""


@dataclass(frozen=True, slots=True)
class Thought:
    """The limit of a thought in tokens, the tokens that `close` a longer one, and whether a reply has `closed` it."""

    limit: int
    close: tuple[int, ...]
    closed: Callable[[Sequence[int]], bool]

    def forced(self, tokens: Sequence[int]) -> tuple[int, int]:
        """`Turn.forced` of a reply with these tokens so far, which are as many as the limit."""
        return (0, 0) if self.closed(tokens) else (self.limit, self.limit + len(self.close))


@dataclass(slots=True, eq=False)
class Reply:
    """A reply of at most `most` tokens to `asked` that is drawn with the numbers of `random`, as far as it is. It has
    `ended` after its last token, or where who asked says so. `thought` limits its thought."""

    asked: Turn
    random: np.random.Generator
    most: int
    thought: Thought | None = None
    forced: tuple[int, int] = (0, 0)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False

    def take(self, token: int, logprob: float, ends: Collection[int]) -> int:
        """Go on with a drawn token, or with what closes the thought; the token that it goes on with."""
        place = len(self.tokens)
        if self.thought is not None and place == self.thought.limit:
            self.forced = self.thought.forced(self.tokens)
        begin, end = self.forced
        if self.thought is not None and begin <= place < end:
            token, logprob = self.thought.close[place - begin], 0.0
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.ended |= token in ends or len(self.tokens) == self.most
        return token


class Model(Protocol):
    """What decoding needs of a `TransformersPolicy`."""

    ends: Collection[int]

    def read(self, asked: Sequence[Turn]) -> Read: ...
    def read_on(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, cache: DynamicCache) -> Tensor: ...
    def scores(self, logits: Tensor, temperature: float) -> Tensor: ...


R = TypeVar("R", bound=Reply)


class Decoding(Generic[R]):
    """`replies` that share each forward pass of a policy; others may join them.

    Replies that are the same so far share a row, until their draws differ. The rollouts of a group begin with one
    prompt and often say the same, so rows are few. A row that no reply needs any more is dropped when half of all are.
    """

    def __init__(self, policy: Model, temperature: float, top_p: float = 1.0) -> None:
        self.policy, self.temperature, self.top_p = policy, temperature, top_p
        self.replies: list[R] = []
        self._rows: list[int] = []  # of each reply
        self._drawn: list[int] | None = None  # a token of each reply, that is not read yet
        self._read: Read

    @torch.no_grad()
    def join(self, replies: Sequence[R]) -> None:
        """Read the prompts of replies, which go on with the others. Beside others all layers attend to all tokens."""
        self._read_on(1)
        before, first = (self._read, len(self._read[0])) if self.replies else (None, 0)
        asked = {one.asked.key: one.asked for one in replies}
        place = {key: first + row for row, key in enumerate(asked)}
        self._read = self.policy.read(list(asked.values()))
        self._rows += [place[one.asked.key] for one in replies]
        self.replies += replies
        if before is not None:
            size = {
                row: len(one.asked.prompt) + len(one.tokens) for row, one in zip(self._rows, self.replies, strict=True)
            }
            lengths = torch.tensor([[size[row]] for row in range(len(size))])
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
        self._keep([place for place, reply in enumerate(self.replies) if not reply.ended])
        if not self.replies:
            return []
        scores = self.policy.scores(self._read[0], self.temperature)
        uniforms = torch.from_numpy(np.array([[one.random.random()] for one in self.replies])).to(scores.device)
        rows = torch.tensor(self._rows, device=scores.device)
        drawn = draw(scores if self.top_p == 1 else nucleus(scores, self.top_p), rows, uniforms)
        each = zip(self.replies, drawn.tolist(), scores[rows, drawn].tolist(), strict=True)
        self._drawn = [reply.take(token, logprob, self.policy.ends) for reply, token, logprob in each]
        return [*self.replies]

    def _keep(self, places: list[int]) -> None:
        """Go on with the replies at `places` alone."""
        self.replies, self._rows = [self.replies[i] for i in places], [self._rows[i] for i in places]

    def _read_on(self, part: int) -> None:
        """Read what was drawn of the replies that go on. A row is copied for each further token that was drawn after
        it, and rows without a reply are dropped where no more than one `part` of all is left. Either copies the cache.
        """
        if self._drawn is None:
            return
        going = [place for place, reply in enumerate(self.replies) if not reply.ended]
        drawn, self._drawn = [self._drawn[place] for place in going], None
        self._keep(going)
        if not going:
            return
        logits, cache, mask, position = self._read
        rows = {pair: row for row, pair in enumerate(sorted(set(zip(self._rows, drawn, strict=True))))}
        parents = [parent for parent, _ in rows]
        if len(set(parents)) < len(parents) or len(parents) <= len(logits) // part:
            self._rows = [rows[pair] for pair in zip(self._rows, drawn, strict=True)]
            kept = torch.tensor(parents, dtype=torch.long, device=logits.device)
            for layer in cache.layers:
                recurrent = hasattr(layer, "conv_states")  # linear attention, which selects by another name
                (layer.reorder_cache if recurrent else layer.batch_select_indices)(kept)
            mask, position = None if mask is None else mask[kept], position[..., kept, :]
        ids = torch.zeros(position.shape[-2], 1, dtype=torch.long, device=logits.device)
        ids[self._rows, 0] = torch.tensor(drawn, device=logits.device)
        mask = None if mask is None else torch.cat([mask, torch.ones_like(ids)], dim=1)
        self._read = self.policy.read_on(ids, mask, position, cache), cache, mask, position + 1


def draw(scores: Tensor, rows: Tensor, uniforms: Tensor) -> Tensor:
    """Sample a token id for each of n draws, (n,), by inverting the cumulated probabilities of its row.

    `scores` (B, V) are log-probabilities, `uniforms` (n, 1) random numbers in [0, 1). Sums are in double precision,
    since a vocabulary of 150,000 adds up many small numbers. They are made for blocks of tokens first, and then within
    the one block that a draw falls into: to cumulate all tokens takes a fifth of a small model's pass.
    """
    blocks = pad(scores.exp(), (0, -scores.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    cumulated = blocks.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)[rows]
    wanted = uniforms * cumulated[:, -1:]
    block = _beyond(cumulated, wanted)
    within = blocks[rows, block[:, 0]].double().cumsum(dim=-1)
    token = _beyond(within, wanted - pad(cumulated, (1, 0)).gather(1, block))
    return (block * BLOCK + token)[:, 0].clamp(max=scores.shape[1] - 1)


def _beyond(cumulated: Tensor, wanted: Tensor) -> Tensor:
    """The first place (n, 1) whose sum is above `wanted` (n, 1), which rounding never takes past the last increase."""
    below = cumulated[:, -1:] * (1 - torch.finfo(torch.float64).eps)
    return torch.searchsorted(cumulated, torch.minimum(wanted, below), right=True).clamp(max=cumulated.shape[1] - 1)


def nucleus(scores: Tensor, top_p: float) -> Tensor:
    """The log-probabilities `scores` (B, V), -inf for all but the most probable tokens that have `top_p` together."""
    ordered, ids = scores.sort(dim=-1, descending=True, stable=True)
    shares = ordered.double().exp()
    beyond = shares.cumsum(dim=-1) - shares >= top_p
    return scores.masked_fill(torch.empty_like(beyond).scatter(1, ids, beyond), -torch.inf)
