"""Groups as the columns of `credit.advantages_from_rows`."""

from __future__ import annotations

import random
from typing import Any

from anchors import RolloutGroup


def rows_of(groups: list[RolloutGroup]) -> dict[str, list[Any]]:
    """The columns of `advantages_from_rows` for these groups."""
    rows = [
        {
            "group": f"group-{g}",
            "rollout": i,
            "step": t,
            "anchor": step.anchor,
            "action": step.action,
            "success": rollout.success,
            "length": len(rollout),
            "valid": step.valid,
            "reward": step.reward,
            "final_anchor": rollout.final_anchor,
            "truncated": rollout.truncated,
            "score": rollout.score,
        }
        for g, group in enumerate(groups)
        for i, rollout in enumerate(group.rollouts)
        for t, step in enumerate(rollout.steps)
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def shuffled(columns: dict[str, list[Any]], seed: int) -> tuple[dict[str, list[Any]], list[int]]:
    order = list(range(len(columns["group"])))
    random.Random(seed).shuffle(order)
    return {name: [column[row] for row in order] for name, column in columns.items()}, order
