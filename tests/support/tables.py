"""Tables of turns for tests of batches, losses and passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anchors import InternedRollouts
from crbc_rl.batches import RolloutBatch, TokenBatch, Turn, collate, token_weights


def table(
    turns: Sequence[Turn],
    *,
    group: Sequence[int] | None = None,
    advantage: Sequence[float] | None = None,
    old: Sequence[Sequence[float]] | None = None,
    **columns: Sequence[Sequence[float]],
) -> RolloutBatch:
    """Turns as a table, each a rollout of one step. `group` numbers groups that stand together, 0 for all by default;
    `advantage` has one value per turn; `old` and `columns` (`token_advantage`, `correction`, `value`, `returns`) have
    one list per turn with one value per response token."""
    n = np.arange(len(turns))
    groups = 0 * n if group is None else np.asarray(group)
    rollouts = InternedRollouts(
        rollout=n,
        step=0 * n,
        anchor=groups,
        action=0 * n,
        group=groups,
        length=np.ones_like(n),
        success=np.ones_like(n),
    )
    changes: dict[str, Any] = {name: _flat(values) for name, values in columns.items()}
    if advantage is not None:
        changes["advantage"] = np.asarray(advantage, dtype=np.float64)
    if old is not None:
        changes["old"] = _flat(old)
    return replace(RolloutBatch.of(rollouts, turns), **changes)


def weighed(batch: RolloutBatch, pad: int = 0, aggregation: str = "token") -> TokenBatch:
    """All rows as one pass, with the weights of one optimizer step."""
    return collate(batch, pad, token_weights(batch.response_length, batch.group, aggregation))


def by_turn(batch: RolloutBatch, values: np.ndarray | None) -> list[list[float]]:
    """A column of one value per response token as one list per turn."""
    assert values is not None
    return [part.tolist() for part in np.split(values, batch.ends[:-1])]


def _flat(values: Sequence[Sequence[float]]) -> np.ndarray:
    return np.array([value for part in values for value in part], dtype=np.float64)
