"""From sampled turns to tensors, without ever going back through text.

What is trained is exactly what was sampled: the ids a policy generated are carried as ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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


@dataclass(frozen=True, slots=True)
class Row:
    """A turn as an optimizer step reads it.

    `group` is the number of its group; `advantage` one value, or one per response token; `old` the
    log-probabilities that ratios start from; `correction` factors per token where the engine that sampled
    differs from the model that is trained; `weight` the share of each of its tokens in the loss.
    """

    turn: Turn
    group: int
    advantage: float | Sequence[float]
    old: Sequence[float]
    correction: Sequence[float] | None = None
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """B turns as tensors: prompts padded on the left to P tokens, responses on the right to R.

    Members of a group often give one reply at one anchor. Such turns are one row of tokens, so a
    model reads U <= B distinct rows, and `turn` (B,) says which row each turn is; losses and
    gradients are those of all B turns.

    `ids` (U, P + R); `mask` (U, P + R), or None where no prompt is padded, since a causal model never
    looks at padding on its right; `response_mask` (B, R), 1 on
    sampled tokens; `old_logprobs`, `advantages` (B, R); `correction` (B, R), or None for ones; `weights`
    (B,), the share of each token of a turn in the loss; `images`, the frames of each distinct row; `places`,
    where each of the B turns stood among the rows that were batched.
    """

    ids: Tensor
    mask: Tensor | None
    turn: Tensor
    response_mask: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    correction: Tensor | None = None
    images: tuple[tuple[NDArray[np.uint8], ...], ...] = ()
    places: tuple[int, ...] = ()

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


def weigh(rows: Sequence[Row], aggregation: str) -> list[Row]:
    """The rows of one optimizer step with the weight of each: over all tokens of all rows they sum to 1.

    "token": every token weighs the same, as public trainers have it. "step": every environment step does,
    shared by its tokens. "group": every group does, shared by its steps, as the paper's objective is written.
    """
    if aggregation == "token":
        one = 1.0 / sum(len(row.turn.response) for row in rows)
        return [replace(row, weight=one) for row in rows]
    if aggregation == "step":
        return [replace(row, weight=1.0 / (len(rows) * len(row.turn.response))) for row in rows]
    steps = Counter(row.group for row in rows)
    return [replace(row, weight=1.0 / (len(steps) * steps[row.group] * len(row.turn.response))) for row in rows]


def micro_batches(
    rows: Sequence[Row], pad: int, size: int | None = None, rank: int = 0, ranks: int = 1
) -> Iterator[TokenBatch]:
    """The share of process `rank` of `ranks` in the passes over `rows`: at most `size` distinct turns each, of
    like length, so that little is padded. Every process gets as many passes; one without turns in a pass
    gets a turn that counts for nothing, since passes of sharded models are made together.
    """
    parts: dict[tuple[Any, ...], list[tuple[int, Row]]] = {}
    for place, row in enumerate(rows):
        parts.setdefault(row.turn.key, []).append((place, row))
    distinct = [parts[key] for key in sorted(parts)]
    span = len(distinct) if size is None else size * ranks
    for start in range(0, len(distinct), span):
        chunk = distinct[start : start + span]
        mine = chunk[rank::ranks]
        yield _stack([part[0][1].turn for part in mine or chunk[:1]], mine, pad)


def collate(rows: Sequence[Row], pad: int) -> TokenBatch:
    """All rows as one batch."""
    return next(micro_batches(rows, pad))


def _stack(turns: Sequence[Turn], parts: Sequence[Sequence[tuple[int, Row]]], pad: int) -> TokenBatch:
    """`parts` has the rows of each distinct turn, with their places."""
    prompts, prompt_mask = pad_left([turn.prompt for turn in turns], pad)
    width = max(len(turn.response) for turn in turns)
    responses = torch.tensor([_padded(turn.response, width, pad) for turn in turns])
    real = torch.tensor([_padded([1.0] * len(turn.response), width, 0.0) for turn in turns])
    mask = None if prompt_mask is None else torch.cat([prompt_mask, real.long()], dim=1)
    rows = [row for part in parts for _, row in part]
    index = torch.tensor([i for i, part in enumerate(parts) for _ in part], dtype=torch.long)
    advantages = [[row.advantage] * width if isinstance(row.advantage, float) else row.advantage for row in rows]
    corrected = any(row.correction is not None for row in rows)

    def table(values: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor([_padded(v, width, 0.0) for v in values]).reshape(len(values), width)

    return TokenBatch(
        ids=torch.cat([prompts, responses], dim=1),
        mask=mask,
        turn=index,
        response_mask=real[index],
        old_logprobs=table([row.old for row in rows]),
        advantages=table(advantages),
        weights=torch.tensor([row.weight for row in rows]),
        correction=table([row.correction or () for row in rows]) if corrected else None,
        images=tuple(turn.images for turn in turns),
        places=tuple(place for part in parts for place, _ in part),
    )


def _padded(values: Sequence[Any], width: int, filler: Any) -> list[Any]:
    return [*values, *[filler] * (width - len(values))]
