"""The learner's table, a row per environment step, and the tensors that a pass reads of some of its rows.

What is trained is exactly what was sampled: the ids a policy generated are carried as ids, never through text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchors import InternedRollouts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Turn:
    """One environment step as the policy saw it: prompt ids, sampled response ids (end token included), the
    log-probability each had when it was sampled, the reply as text, and the frames of the prompt."""

    prompt: list[int]
    response: list[int]
    logprobs: list[float]
    text: str = ""
    images: tuple[NDArray[np.uint8], ...] = field(default=(), compare=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for turns a model cannot tell apart; shorter ones come first."""
        pixels = tuple((image.shape, image.tobytes()) for image in self.images)
        return len(self.prompt) + len(self.response), tuple(self.prompt), tuple(self.response), pixels


@dataclass(frozen=True, slots=True, eq=False)
class RolloutBatch:
    """One update as one table: n environment steps in order, with what was said at each and what is made of it.

    `rollouts` has the columns of the environments, `turns` (n,) what the policy read and wrote, `response_length` (n,)
    the tokens it wrote, `advantage` (n,) the credit of each step.

    The other columns have one value per response token, turn after turn, T in all: `old` the log-probabilities that
    ratios start from, `token_advantage` the advantages of a method that credits tokens, `value` and `returns` of PPO's
    critic, `correction` factors where the engine that sampled differs from the model that is trained. All but `old`
    are None where there are none.

    `waited` are the seconds in which nothing but environments ran.
    """

    rollouts: InternedRollouts
    turns: Sequence[Turn]
    response_length: Ints
    advantage: Floats
    old: Floats
    token_advantage: Floats | None = None
    value: Floats | None = None
    returns: Floats | None = None
    correction: Floats | None = None
    waited: float = 0.0

    @classmethod
    def of(cls, rollouts: InternedRollouts, turns: Sequence[Turn], waited: float = 0.0) -> RolloutBatch:
        """The table of what was just sampled, without credit; ratios start from the sampled log-probabilities."""
        length = np.array([len(turn.response) for turn in turns], dtype=np.int64)
        old = np.array([value for turn in turns for value in turn.logprobs], dtype=np.float64)
        return cls(rollouts, turns, length, np.zeros(len(turns)), old, waited=waited)

    @classmethod
    def of_turns(cls, turns: Sequence[Turn]) -> RolloutBatch:
        """Turns of no rollout, as imitation has them: each a rollout of one step, in a group of its own."""
        n = np.arange(len(turns))
        one = np.ones_like(n)
        rollouts = InternedRollouts(rollout=n, step=0 * n, anchor=n, action=0 * n, group=n, length=one, success=one)
        return cls.of(rollouts, turns)

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def ends(self) -> Ints:
        """Where each turn's tokens end in a column of one value per response token, (n,)."""
        return np.cumsum(self.response_length)

    def mean_by_step(self, per_token: Floats) -> Floats:
        """The mean of a column of one value per response token over the tokens of each step, (n,)."""
        return np.add.reduceat(per_token, self.ends - self.response_length) / self.response_length

    @property
    def group(self) -> Ints:
        """The group of every step, (n,)."""
        return self.rollouts.group[self.rollouts.rollout]

    def select(self, groups: Sequence[int]) -> RolloutBatch:
        """The rows of some groups, before anything was made of them."""
        rows = self.rollouts.rows_of(groups)
        return RolloutBatch.of(self.rollouts.select(groups), [self.turns[row] for row in rows.tolist()], self.waited)

    @staticmethod
    def concat(parts: Sequence[RolloutBatch]) -> RolloutBatch:
        """The groups of all parts, before anything was made of them."""
        if len(parts) == 1:
            return parts[0]
        turns = [turn for part in parts for turn in part.turns]
        waited = sum(part.waited for part in parts)
        return RolloutBatch.of(InternedRollouts.concat([part.rollouts for part in parts]), turns, waited)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """B turns as tensors: prompts padded on the left to P tokens, responses on the right to R.

    Members of a group often give one reply at one anchor. Such turns are one row of tokens, so a
    model reads U <= B distinct rows, and `turn` (B,) says which row each turn is; losses and
    gradients are those of all B turns.

    `ids` (U, P + R); `mask` (U, P + R), or None where no prompt is padded, since a causal model never
    looks at padding on its right; `response_mask` (B, R), 1 on
    sampled tokens; `old_logprobs`, `advantages` (B, R); `correction`, `values` and `returns` (B, R), or None where the
    table has none; `weights` (B,), the share of each token of a turn in the loss; `images`, the frames of each
    distinct row; `rows` (B,), where each turn stands in the table.
    """

    ids: Tensor
    mask: Tensor | None
    turn: Tensor
    response_mask: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    correction: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    images: tuple[tuple[NDArray[np.uint8], ...], ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def response_length(self) -> int:
        return self.response_mask.shape[1]

    def to(self, device: torch.device) -> TokenBatch:
        """The same batch with every tensor on `device`."""
        tensors = {name: getattr(self, name) for name in self.__slots__}
        return replace(self, **{n: t.to(device) for n, t in tensors.items() if isinstance(t, Tensor)})


def pad_left(prompts: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor | None]:
    """Prompt ids (B, P) and their mask, None where all are of one length."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    if all(len(prompt) == width for prompt in prompts):
        return ids, None
    return ids, torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])


def positions_of(mask: Tensor) -> Tensor:
    """Token positions that start at 0 at each row's first real token."""
    return (mask.cumsum(dim=1) - 1).clamp_(min=0)


def token_weights(length: Ints, group: Ints, aggregation: str) -> Floats:
    """The weight of each token of every row of one optimizer step: over all tokens of all rows they sum to 1.

    `length` and `group` (B,) are each row's response tokens and group. "token": every token weighs the same, as public
    trainers have it. "step": every environment step does, shared by its tokens. "group": every group does, shared by
    its steps, as the paper's objective is written.
    """
    if aggregation == "token":
        return np.full(len(length), 1.0 / length.sum())
    if aggregation == "step":
        return 1.0 / (len(length) * length)
    steps = np.bincount(group)
    return 1.0 / (np.count_nonzero(steps) * steps[group] * length)


def micro_batches(
    batch: RolloutBatch,
    rows: Ints,
    weights: Floats | None,
    pad: int,
    size: int | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[TokenBatch]:
    """The passes of process `rank` of `ranks` over some `rows` of the table: at most `size` distinct turns each, of
    like length, so that little is padded. `weights` (len(rows),) go into the loss; without them they are 0.

    Every process gets as many passes; one without turns in a pass gets a turn that counts for nothing, since passes
    of sharded models are made together.
    """
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows.tolist()):
        places.setdefault(batch.turns[row].key, []).append(place)
    distinct = [places[key] for key in sorted(places)]
    span = len(distinct) if size is None else size * ranks
    for start in range(0, len(distinct), span):
        chunk = distinct[start : start + span]
        mine = chunk[rank::ranks]
        turns = [batch.turns[rows[part[0]]] for part in mine or chunk[:1]]
        yield _stack(batch, rows, np.zeros(len(rows)) if weights is None else weights, turns, mine, pad)


def collate(batch: RolloutBatch, pad: int, weights: Floats | None = None) -> TokenBatch:
    """All rows as one batch."""
    return next(micro_batches(batch, np.arange(len(batch)), weights, pad))


def _stack(
    batch: RolloutBatch, rows: Ints, weights: Floats, turns: Sequence[Turn], parts: Sequence[Sequence[int]], pad: int
) -> TokenBatch:
    """`parts` has the places, among `rows`, of the turns that equal each distinct one."""
    prompts, prompt_mask = pad_left([turn.prompt for turn in turns], pad)
    width = max(len(turn.response) for turn in turns)
    responses = torch.tensor([_padded(turn.response, width, pad) for turn in turns])
    real = torch.tensor([_padded([1.0] * len(turn.response), width, 0.0) for turn in turns])
    mask = None if prompt_mask is None else torch.cat([prompt_mask, real.long()], dim=1)
    index = torch.tensor([i for i, part in enumerate(parts) for _ in part], dtype=torch.long)
    order = np.array([place for part in parts for place in part], dtype=np.int64)
    chosen = rows[order]
    # Where the tokens of each turn stand in a column of one value per token, and which of them are padding.
    at = (batch.ends - batch.response_length)[chosen, None] + np.arange(width)
    inside = np.arange(width) < batch.response_length[chosen, None]

    def column(values: Floats | None) -> Tensor | None:
        if values is None:
            return None
        return torch.from_numpy(np.where(inside, values[np.minimum(at, len(values) - 1)], 0.0)).float()

    by_step = torch.from_numpy(batch.advantage[chosen]).float()[:, None].expand(-1, width)
    return TokenBatch(
        ids=torch.cat([prompts, responses], dim=1),
        mask=mask,
        turn=index,
        response_mask=real[index],
        old_logprobs=column(batch.old),
        advantages=by_step if batch.token_advantage is None else column(batch.token_advantage),
        weights=torch.from_numpy(weights[order]).float(),
        correction=column(batch.correction),
        values=column(batch.value),
        returns=column(batch.returns),
        images=tuple(turn.images for turn in turns),
        rows=tuple(chosen.tolist()),
    )


def _padded(values: Sequence[Any], width: int, filler: Any) -> list[Any]:
    return [*values, *[filler] * (width - len(values))]
