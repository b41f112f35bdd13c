"""How the rows of an update are cut into mini-batches, one for each optimizer step.

The weights of an update's rows are made once, for all of its mini-batches. The mean of the mini-batches' losses is thus
exactly the loss of the update, however it was cut, and a short mini-batch weighs less.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import lcm
from typing import Any

import numpy as np

from crbc_rl.batches import Bools, Floats, Ints, RolloutBatch, equal_turns, token_weights
from crbc_rl.config import TrainConfig

RANKS = 8
"""GPUs of the runs whose mini-batches "ranks" forms."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatch:
    """The rows of one optimizer step, (n,), the loss weight of each token of every row, (n,), and which rows have an
    advantage, (n,)."""

    rows: Ints
    weights: Floats
    signal: Bools


def mini_batches(batch: RolloutBatch, config: TrainConfig, rng: np.random.Generator) -> list[MiniBatch]:
    """The mini-batches of one epoch, of about `optim.minibatch` rows each. `optim.order` selects which rows meet.

    Rows that are `masked` weigh nothing.
    """
    if config.optim.order == "ranks":
        parts = by_rank(batch, config, rng)
    else:
        weights = _weights(batch, np.arange(len(batch)), config.loss.aggregation)
        cut = (by_group if config.optim.order == "group" else spread)(batch, config.optim.minibatch, rng)
        parts = [(rows, weights[rows] * len(cut)) for rows in cut]
    signal = has_gradient(batch)
    return [MiniBatch(rows, weights, signal[rows]) for rows, weights in parts]


def by_group(batch: RolloutBatch, size: int, rng: np.random.Generator) -> list[Ints]:
    """Groups in shuffled order, each whole, cut every `size` rows. The last mini-batch may be short."""
    rows = batch.rollouts.rows_of(rng.permutation(batch.rollouts.num_groups).tolist())
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def spread(batch: RolloutBatch, size: int, rng: np.random.Generator) -> list[Ints]:
    """Mini-batches of equal size that each hold rows of all groups.

    Sets of equal turns stay together, so each is read once; those of more than an eighth of a mini-batch are divided,
    since they would decide its gradient. Sets with an advantage are dealt first, the largest of them before the others,
    and each goes to the mini-batch with the fewest rows. Those of one group are dealt one after the other and so go to
    different mini-batches. There are never more mini-batches than sets with an advantage, unless no set has one: an
    optimizer step without policy gradient would follow the KL term alone.
    """
    most = max(1, size // 8)
    sets = [rows[k : k + most] for rows in equal_turns(batch.turns).values() for k in range(0, len(rows), most)]
    signal = has_gradient(batch)
    active = [bool(signal[part].any()) for part in sets]
    count = min(-(-len(batch) // size), sum(active) or len(sets))
    group, place = batch.group, rng.permutation(batch.rollouts.num_groups)
    drawn = rng.permutation(len(sets))
    order = sorted(range(len(sets)), key=lambda s: (not active[s], -len(sets[s]), place[group[sets[s][0]]], drawn[s]))
    filled = [(0, part) for part in range(count)]
    """A heap of (rows, mini-batch)."""
    parts: list[list[int]] = [[] for _ in range(count)]
    for s in order:
        rows, part = filled[0]
        parts[part] += sets[s]
        heapreplace(filled, (rows + len(sets[s]), part))
    return [np.array(parts[part], dtype=np.int64) for part in rng.permutation(count).tolist()]


def by_rank(batch: RolloutBatch, config: TrainConfig, rng: np.random.Generator) -> list[tuple[Ints, Floats]]:
    """The rows and weights of mini-batches as verl-agent's trainer forms them on eight GPUs.

    Rows are copied at random until all mini-batches are full. They are divided into eight sets of equal size and of
    nearly equal tokens, each in the order of the rollouts. The first mini-batch has the first rows of each set, and so
    on. A weight is divided over the tokens of one GPU's pass, and all passes that keep a token have equal weight. All
    this holds whatever the number of our GPUs.
    """
    optim = config.optim
    unit = lcm(optim.minibatch, RANKS * (optim.score_microbatch or 1))
    missing = -len(batch) % unit
    copies = rng.choice(len(batch), missing, replace=missing > len(batch))
    rows = np.concatenate([np.arange(len(batch)), copies])
    tokens = np.array([len(turn.prompt) + len(turn.response) for turn in batch.turns])
    sets = [rows[part] for part in balanced(tokens[rows], RANKS)]
    each = optim.minibatch // RANKS
    size = optim.microbatch or each
    parts = []
    for start in range(0, len(rows) // RANKS, each):
        pieces = [part[start : start + each] for part in sets]
        passes = [piece[k : k + size] for piece in pieces for k in range(0, each, size)]
        weights = [_weights(batch, part, config.loss.aggregation) for part in passes]
        kept = sum(bool(of_pass.any()) for of_pass in weights)
        parts.append((np.concatenate(passes), np.concatenate(weights) / max(1, kept)))
    return parts


def balanced(sizes: Ints, parts: int) -> list[Ints]:
    """Divide items into `parts` sets of equally many, with nearly equal sums of `sizes`; each set in order.

    The largest differencing method of Karmarkar and Karp (1982) with tuples of neighbours in size, ties broken as in
    verl. The number of items must be a multiple of `parts`.
    """
    order = np.argsort(sizes, kind="stable").tolist()
    states: list[tuple[Any, ...]] = []
    """A heap of partial divisions: sets as (sum, count, items), the largest first, behind what ranks the division."""

    def push(sets: list[tuple[int, int, list[int]]]) -> None:
        sets.sort(reverse=True)
        total, count, items = sets[0]
        heappush(states, (sets[-1][0] - total, -total, -count, [-item for item in items], sets))

    for start in range(0, len(order), parts):
        push([(int(sizes[item]), 1, [item]) for item in order[start : start + parts]])
    while len(states) > 1:
        one, other = heappop(states)[-1], heappop(states)[-1]
        pairs = zip(one, reversed(other), strict=True)  # the largest set with the smallest
        push([(a + b, m + n, items + more) for (a, m, items), (b, n, more) in pairs])
    return [np.sort(np.array(items, dtype=np.int64)) for _, _, items in states[0][-1]]


def _weights(batch: RolloutBatch, rows: Ints, aggregation: str) -> Floats:
    """The weights of some rows, of which those that are masked weigh nothing."""
    weights = np.zeros(len(rows))
    kept = np.ones(len(rows), dtype=bool) if batch.masked is None else ~batch.masked[rows]
    if kept.any():
        weights[kept] = token_weights(batch.sampled_length[rows][kept], batch.group[rows][kept], aggregation)
    return weights


def has_gradient(batch: RolloutBatch) -> Bools:
    """Whether each row has an advantage that counts, (n,)."""
    if batch.token_advantage is None:
        signal: Bools = batch.advantage != 0.0
    else:
        signal = batch.mean_by_step(np.abs(batch.token_advantage)) > 0.0
    return signal if batch.masked is None else signal & ~batch.masked
