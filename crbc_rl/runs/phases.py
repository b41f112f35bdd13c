"""The phases of an update, and blocks of them that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crbc_rl.runs.metric import Metric

SECONDS = (
    Metric("update", "", "Update", "seconds", "all time since the record before; the others add up to it"),
    Metric("reset", "", "Resets", "seconds", "beginning the episodes, with the proof that copies begin alike"),
    Metric("generate", "", "Generation", "seconds", "sampling replies; prompts, and environments that step meanwhile"),
    Metric("environments", "", "Environments", "seconds", "waiting for environments while nothing is sampled"),
    Metric("group_advantage", "", "Group advantage", "seconds", "the trajectory-level advantage A_G"),
    Metric("step_credit", "", "Step credit", "seconds", "empirical process, closure and step credit A_S; assembly"),
    Metric("tensors", "", "Tensors", "seconds", "forming mini-batches, and the tensors of every pass"),
    Metric("old", "", "Old log-probabilities", "seconds", "passes that give them, where another engine samples"),
    Metric("reference", "", "Reference", "seconds", "passes of the frozen reference"),
    Metric("values", "", "Values", "seconds", "passes of PPO's critic for its values"),
    Metric("critic", "", "Critic", "seconds", "training PPO's critic"),
    Metric("train", "", "Training", "seconds", "forward and backward passes, loss and optimizer of the policy"),
    Metric("weights", "", "Weights", "seconds", "handing the trained weights to the engine that samples"),
    Metric("figures", "", "Figures", "seconds", "computing the figures of the record"),
    Metric("save", "", "Saving", "seconds", "recorded groups; record, best policy and checkpoint of the update before"),
    Metric("eval", "", "Evaluation", "seconds", "validation and test"),
    Metric("other", "", "Other", "seconds", "outside of all these"),
)
"""Metrics of seconds/, wall-clock time."""

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
