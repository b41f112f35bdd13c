"""`RolloutBatch`, the learner's table with one row per environment step, and `TokenBatch`, the tensors of one pass.

Training uses exactly the token ids that were sampled. They are never decoded to text and encoded again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchors import InternedRollouts
from anchors.columns import Bools, Floats, Ints
from crbc_rl.trees import Tree, packed, trees

Parts = Sequence[Sequence[int]]

PASS = 128
"""The work of a pass that does not depend on its tokens, in tokens: a tiny model's is about 80, a sharded one's 300."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One environment step as the policy saw it.

    `prompt` has the prompt's token ids, `response` the sampled ids including the end token, `logprobs` the
    log-probability of each response token when it was sampled, `text` the reply as text, `images` the prompt's frames.
    `shortened` tells that the prompt was too long and has lost records or lines. `finish_reason` is what the sampler
    says of the reply's end, and `cause` why the reply was invalid, one of `crbc_envs.actions.CAUSES`; "" if it was not.
    `asked` is the prompt as text, where it has no token ids. `forced` is the part of `response`, from one place to
    before another, that was put there to close a thought: it was not sampled, and is not trained.
    """

    prompt: list[int]
    response: list[int]
    logprobs: list[float]
    text: str = ""
    images: tuple[NDArray[np.uint8], ...] = field(default=(), compare=False)
    shortened: bool = field(default=False, compare=False)
    cause: str = field(default="", compare=False)
    finish_reason: str | None = field(default=None, compare=False)
    asked: str = field(default="", compare=False)
    forced: tuple[int, int] = (0, 0)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for turns that are the same input to a model; sorts shorter turns first."""
        pixels = tuple((image.shape, image.tobytes()) for image in self.images)
        return len(self.prompt) + len(self.response), tuple(self.prompt), tuple(self.response), self.forced, pixels


@dataclass(frozen=True, slots=True, eq=False)
class RolloutBatch:
    """One update as one table of n environment steps in order.

    Columns per step (n,): `rollouts` has the columns of the environments, `turns` the prompts and replies,
    `response_length` the number of response tokens, `advantage` the credit of the step, `masked` which steps are left
    out of the loss (None: none is).

    Columns per response token (T,), turn after turn: `old` has the old log-probabilities of the ratios,
    `token_advantage` the advantages of methods that credit tokens, `value` and `returns` those of PPO's critic,
    `correction` the importance weights where the sampling engine differs from the trained model. All except `old` may
    be None.

    `seen` has what the optimizer step saw that trained each token, (4, T), where it was watched: log-probability,
    ratio, advantage, and 1 where it was clipped; NaN where none did. `all_groups` is all that was played, where these
    groups were chosen from it.
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
    masked: Bools | None = None
    seen: Floats | None = None
    all_groups: RolloutBatch | None = None

    @classmethod
    def of(cls, rollouts: InternedRollouts, turns: Sequence[Turn]) -> RolloutBatch:
        """A batch of newly sampled `rollouts` and their `turns`, one per step (n,): advantages are 0, old
        log-probabilities are those of sampling."""
        length = np.array([len(turn.response) for turn in turns], dtype=np.int64)
        old = np.array([value for turn in turns for value in turn.logprobs], dtype=np.float64)
        return cls(rollouts, turns, length, np.zeros(len(turns)), old)

    @classmethod
    def of_turns(cls, turns: Sequence[Turn]) -> RolloutBatch:
        """A batch of single `turns` for imitation: each turn is a rollout of one step in its own group."""
        n = np.arange(len(turns))
        one = np.ones_like(n)
        rollouts = InternedRollouts(rollout=n, step=0 * n, anchor=n, action=0 * n, group=n, length=one, success=one)
        return cls.of(rollouts, turns)

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def sampled_length(self) -> Ints:
        """The response tokens of each turn that were sampled, (n,)."""
        put = [min(turn.forced[1], len(turn.response)) - turn.forced[0] for turn in self.turns]
        return self.response_length - np.array(put, dtype=np.int64)

    @property
    def ends(self) -> Ints:
        """The end offset of each turn in a column per response token, (n,)."""
        return np.cumsum(self.response_length)

    def mean_by_step(self, per_token: Floats) -> Floats:
        """The mean of `per_token` (T,), a value for each response token, over the tokens of each step, (n,)."""
        return np.add.reduceat(per_token, self.ends - self.response_length) / self.response_length

    def cut(self, ends: Collection[int]) -> Bools:
        """Whether each reply reached the limit of tokens, and so does not end with one of `ends`, (n,)."""
        return np.array([turn.response[-1] not in ends for turn in self.turns], dtype=bool)

    @property
    def group(self) -> Ints:
        """The group of every step, (n,)."""
        return self.rollouts.group[self.rollouts.rollout]

    def select(self, groups: Sequence[int]) -> RolloutBatch:
        """The rows of some `groups`, by number, as newly sampled: without credit."""
        rows = self.rollouts.rows_of(groups)
        return RolloutBatch.of(self.rollouts.select(groups), [self.turns[row] for row in rows.tolist()])

    @staticmethod
    def concat(parts: Sequence[RolloutBatch]) -> RolloutBatch:
        """The groups of all `parts`, as newly sampled: without credit. A single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        turns = [turn for part in parts for turn in part.turns]
        return RolloutBatch.of(InternedRollouts.concat([part.rollouts for part in parts]), turns)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """B turns as tensors, of which D <= B are distinct; at most R tokens of a turn are responses.

    Members of a group often give the same reply at the same anchor. Equal turns are read once, and `turn` (B,) is the
    distinct one of each. Losses and gradients are those of all B turns.

    `ids` (U, L): token ids, padded on the right: each row a distinct turn, a tree of some that begin alike
    (`crbc_rl.trees`), or turns packed one behind the other. `real` (D, R): which response tokens were sampled, and
    are no padding. `row` and `column` (T,): where each of these is in `ids`, turn after turn, and `before` the
    column of the token before it. `position` (U, L) and `mask` (U, 1, L, L), which tokens each one attends to, are
    None where a row is a turn: a causal model does not attend to padding on the right. Packed turns have no mask:
    the model knows them by their positions. `prompt` (D,): the length of each prompt. `response_mask` (B, R):
    `real` of each turn, as numbers. `old_logprobs`, `advantages` (B, R). `correction`, `values`, `returns` (B, R),
    or None where the table has none.
    `weights` (B,): the weight of each token of a turn in the loss. `images`: the frames of each distinct turn. `rows`
    (B,): the table's row of each turn.
    """

    ids: Tensor
    prompt: Tensor
    real: Tensor
    row: Tensor
    column: Tensor
    before: Tensor
    turn: Tensor
    response_mask: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    position: Tensor | None = None
    mask: Tensor | None = None
    correction: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    images: tuple[tuple[NDArray[np.uint8], ...], ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def response_length(self) -> int:
        return self.real.shape[1]

    def to(self, device: torch.device) -> TokenBatch:
        """The batch with every tensor on `device`."""
        tensors = {name: getattr(self, name) for name in self.__slots__}
        moved: dict[str, Any] = {n: t.to(device) for n, t in tensors.items() if isinstance(t, Tensor)}
        return replace(self, **moved)


def pad_left(prompts: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor | None]:
    """Prompt ids (B, P), padded on the left, and their mask (B, P); the mask is None where all have the same length."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], dtype=torch.long)
    if all(len(prompt) == width for prompt in prompts):
        return ids, None
    return ids, torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])


def positions_of(mask: Tensor) -> Tensor:
    """Position ids that are 0 at each row's first token that is not padding."""
    return (mask.cumsum(dim=1) - 1).clamp_(min=0)


def token_weights(length: Ints, group: Ints, aggregation: str) -> Floats:
    """The loss weight of each token of every row, (B,). Over all tokens the weights sum to 1.

    `length` and `group` (B,) are each row's number of response tokens and its group. With "token" every token has the
    same weight, as in public trainers. With "step" every environment step has the same weight, divided among its
    tokens. With "group" every group has the same weight, divided among its steps, as the paper writes its objective.
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
    tokens: int | None = None,
    reach: float | None = None,
    packs: bool = False,
) -> Iterator[TokenBatch]:
    """The passes of rank `rank` of `ranks` over some `rows` of the table.

    A pass has at most `size` distinct turns and `tokens` tokens with padding, or a single row; their lengths are
    similar to keep padding small. `weights` (len(rows),) are the loss weights, 0 if None. Every rank gets the same
    number of passes, since all ranks run the passes of a sharded model together. A rank without turns in a pass gets
    a row that does not count in the loss. With `reach`, turns that begin alike share a row (`crbc_rl.trees`), where
    none has frames. Where the model `packs`, a pass is one row of turns, whose positions begin anew, without padding.
    """
    distinct = _equal_turns(batch, rows)
    frames = any(batch.turns[row].images for row in rows.tolist())
    if reach is None or frames:
        made = _alone(batch, rows, distinct)
    else:
        turns = [batch.turns[rows[part[0]]] for part in distinct]
        made = sorted(trees([turn.prompt + turn.response for turn in turns], reach, size, tokens), key=len)
    held = [len(tree.turns) for tree in made]
    for start, end in spans([len(tree) for tree in made], PASS, size, ranks, tokens, held):
        mine = made[start + rank : end : ranks]
        own = mine or made[start : start + 1]
        own = [packed(own)] if packs and not frames else own
        yield _stack(batch, rows, weights, own, distinct, bool(mine), pad, masked=not packs)


def spans(
    lengths: Sequence[int],
    beside: int,
    size: int | None = None,
    ranks: int = 1,
    tokens: int | None = None,
    turns: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """The beginning and end of each pass over rows of rising `lengths`, so that all together cost least.

    A pass costs its rows on the first of `ranks` times the longest, and `beside`, the work that does not depend on its
    tokens. It has at most `size` turns and `tokens` tokens a rank, or one row; `turns` tells how many each row has.
    """
    long, held = np.asarray(lengths), np.cumsum([0, *(turns or [1] * len(lengths))])
    best, cut = np.zeros(len(long) + 1), np.zeros(len(long) + 1, dtype=np.int64)
    for end in range(1, len(long) + 1):
        few = 0 if size is None else int(np.searchsorted(held, held[end] - size * ranks))
        first = min(few, end - 1)
        rows = -(-np.arange(end - first, 0, -1) // ranks)  # of the first rank, by the beginning
        cost = rows * long[end - 1]
        total = np.where((rows > 1) & (cost > (tokens or np.inf)), np.inf, best[first:end] + cost + beside)
        cut[end] = first + int(total.argmin())
        best[end] = total[cut[end] - first]
    made, end = [], len(long)
    while end:
        made.append((int(cut[end]), end))
        end = int(cut[end])
    return made[::-1]


def equal_turns(turns: Sequence[Turn]) -> dict[tuple[Any, ...], list[int]]:
    """The places of turns that are the same input to a model, by their key, in order of the first of each."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, turn in enumerate(turns):
        places.setdefault(turn.key, []).append(place)
    return places


def _equal_turns(batch: RolloutBatch, rows: Ints) -> list[list[int]]:
    """The indices into `rows` of each distinct turn, the shortest first."""
    places = equal_turns([batch.turns[row] for row in rows.tolist()])
    return [places[key] for key in sorted(places)]


def _alone(batch: RolloutBatch, rows: Ints, distinct: Parts) -> list[Tree]:
    """Each distinct turn as a row of its own."""
    turns = [batch.turns[rows[part[0]]] for part in distinct]
    return [Tree([i], turn.prompt + turn.response, [np.arange(turn.key[0])]) for i, turn in enumerate(turns)]


def collate(batch: RolloutBatch, pad: int, weights: Floats | None = None) -> TokenBatch:
    """All rows of the table as one `TokenBatch`."""
    distinct = _equal_turns(batch, rows := np.arange(len(batch)))
    return _stack(batch, rows, weights, _alone(batch, rows, distinct), distinct, True, pad)


def _stack(
    batch: RolloutBatch,
    rows: Ints,
    weights: Floats | None,
    made: Sequence[Tree],
    distinct: Parts,
    counts: bool,
    pad: int,
    masked: bool = True,
) -> TokenBatch:
    """The `TokenBatch` of trees of some `distinct` turns, each of which has indices into `rows`. It is without turns
    where it does not count."""
    parts = [distinct[turn] for tree in made for turn in tree.turns]
    turns = [batch.turns[rows[part[0]]] for part in parts]
    paths = [path for tree in made for path in tree.paths]
    length, width = max(map(len, made)), max(len(turn.response) for turn in turns)
    kept = np.arange(width) < np.array([len(turn.response) for turn in turns])[:, None]
    for row, turn in enumerate(turns):
        kept[row, slice(*turn.forced)] = False
    sampled, real = [np.flatnonzero(tokens) for tokens in kept], torch.from_numpy(kept)
    of_row = np.repeat(np.arange(len(made)), [len(tree.turns) for tree in made])
    parts = parts if counts else []
    index = torch.tensor([i for i, part in enumerate(parts) for _ in part], dtype=torch.long)
    order = np.array([place for part in parts for place in part], dtype=np.int64)
    chosen = rows[order]
    # The index of each turn's tokens in a column per token, and which of them are not padding.
    at = (batch.ends - batch.response_length)[chosen, None] + np.arange(width)
    inside = np.arange(width) < batch.response_length[chosen, None]

    def column(values: Floats) -> Tensor:
        return torch.from_numpy(np.where(inside, values[np.minimum(at, len(values) - 1)], 0.0)).float()

    by_step = torch.from_numpy(batch.advantage[chosen]).float()[:, None].expand(-1, width)
    shared = len(turns) > len(made)
    both = list(zip(turns, paths, sampled, strict=True))
    return TokenBatch(
        ids=torch.tensor([[*tree.ids, *[pad] * (length - len(tree))] for tree in made]),
        prompt=torch.tensor([len(turn.prompt) for turn in turns]),
        real=real,
        row=torch.from_numpy(np.repeat(of_row, [len(tokens) for tokens in sampled])),
        column=torch.from_numpy(np.concatenate([path[len(turn.prompt) :][tokens] for turn, path, tokens in both])),
        before=torch.from_numpy(
            np.concatenate([path[len(turn.prompt) - 1 : -1][tokens] for turn, path, tokens in both])
        ),
        turn=index,
        response_mask=real[index].float(),
        old_logprobs=column(batch.old),
        advantages=by_step if batch.token_advantage is None else column(batch.token_advantage),
        weights=torch.zeros(len(order)) if weights is None else torch.from_numpy(weights[order]).float(),
        position=torch.from_numpy(np.stack([tree.position(length) for tree in made])) if shared else None,
        mask=torch.from_numpy(np.stack([tree.mask(length) for tree in made]))[:, None] if shared and masked else None,
        correction=None if batch.correction is None else column(batch.correction),
        values=None if batch.value is None else column(batch.value),
        returns=None if batch.returns is None else column(batch.returns),
        images=tuple(turn.images for turn in turns),
        rows=tuple(chosen.tolist()),
    )
