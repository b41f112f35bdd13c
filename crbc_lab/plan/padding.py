"""The padding of an update's passes, and how long ranks wait for the one with the most tokens.

Both are those of the learner's own division into passes, on lengths that are drawn as the workload has them.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from crbc_lab.plan.workload import Workload, going_on
from crbc_rl.batches import PASS, spans
from crbc_rl.config import TrainConfig

DRAWN = 2_048
"""Rows whose lengths are drawn, where an update has more."""


def computed(
    config: TrainConfig, work: Workload, frames: bool, rows: float, gpus: int, at_once: int, size: int | None
) -> tuple[float, float]:
    """Tokens that `gpus` ranks compute, or wait for, over the tokens of their rows, at least 1; and the passes of each.

    An update of `rows` rows is read in mini-batches of `at_once`, with at most `size` rows a rank and pass.
    Rows with `frames` are never packed.
    """
    drawn = drawn_lengths(work, max(1, min(round(rows), DRAWN)), config.rollout.max_new_tokens)
    packs, spent, passes = (config.policy.attention or "").startswith("flash") and not frames, 0.0, 0
    for begin in range(0, len(drawn), at_once):
        lengths = np.sort(drawn[begin : begin + at_once])
        for start, end in spans(lengths.tolist(), PASS, size, gpus, config.optim.microbatch_tokens):
            part = lengths[start:end]
            most = max(part[rank::gpus].sum() for rank in range(gpus)) if packs else ceil(len(part) / gpus) * part[-1]
            spent, passes = spent + gpus * most, passes + 1
    return float(spent / drawn.sum()), passes * rows / len(drawn)


def drawn_lengths(work: Workload, rows: int, limit: int) -> np.ndarray:
    """Tokens of rows in no order: prompts around their mean, and replies that end at random."""
    draws, even, on = np.random.default_rng(0), (np.arange(rows) + 0.5) / rows, going_on(work.reply, limit)
    replies = np.full(rows, limit) if on >= 1 else np.minimum(1 + np.log1p(-even) / np.log(max(on, 1e-300)), limit)
    prompts = np.maximum(1.0, work.prompt + work.spread * draws.standard_normal(rows))
    return np.ceil(prompts + draws.permutation(replies))
