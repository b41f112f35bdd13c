"""The phases of an update, and blocks of them that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BLOCKS = {
    "rollout": ("reset", "generate", "environments"),
    "credit": ("group_advantage", "step_credit"),
    "train": ("tensors", "old", "reference", "values", "critic", "train", "weights"),
    "eval": ("eval",),
    "save": ("save",),
    "other": ("figures", "other"),
}
"""The names in seconds/ of each block. A new phase that is in none counts as other."""


def blocks(record: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a record by block, without the blocks that it has no figure of. A block may stand for its phases."""
    seconds = {key.partition("/")[2]: float(s) for key, s in record.items() if key.startswith("seconds/")}
    block_of = {phase: block for block, phases in BLOCKS.items() for phase in (block, *phases)}
    seconds_of: dict[str, float] = {}
    for phase, some in seconds.items():
        if phase != "update":
            block = block_of.get(phase, "other")
            seconds_of[block] = seconds_of.get(block, 0.0) + some
    return {name: seconds_of[name] for name in BLOCKS if name in seconds_of}
