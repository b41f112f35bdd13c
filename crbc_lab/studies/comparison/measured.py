"""What was measured within trainings of one method: evidence coverage by depth, and seconds by phase."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crbc_lab.studies.comparison.definition import Scale, Study
from crbc_lab.studies.comparison.kept import Kept, find
from crbc_lab.studies.comparison.trainings import EARLY, trainings

LABELS = {"0": "K = 0", "1": "K = 1", "3": "K = 3", "full": "full closure"}
CREDIT = ("group_advantage", "step_credit")
PHASES = ("generate", "environments", "reset", *CREDIT, "tensors", "train", "reference", "figures", "save", "other")


def kept_of(study: Study, scale: Scale, env: str, results: Path) -> list[Kept]:
    """The finished trainings of a study that shows one method from within."""
    wanted = trainings(study, scale, env, study.setting(scale, env).seeds, {})
    return [found for one in wanted if (found := find(one, results)) is not None]


def coverage(kept: Sequence[Kept]) -> str:
    """Means over the first updates, and the lowest and highest seed.

    Coverage is the share of a group's rollouts whose evidence reaches a visit; full access the share of visits that all
    of them reach. Only visits to anchors with two distinct actions count, as in the paper.
    """
    lines = ["| depth | rollouts reached, % | visits that all rollouts reach, % |", "| --- | --- | --- |"]
    for depth, label in LABELS.items():
        cells = [_spread([_early(one, f"{name}/{depth}") for one in kept]) for name in ("coverage", "full_access")]
        lines.append(f"| {label} | {cells[0]} | {cells[1]} |")
    told = f"The first {EARLY} updates of {len(kept)} seeds: mean, lowest and highest seed."
    if counted := [one.coverage["expanded"] for one in kept if one.coverage]:
        told += f" Under full closure more rollouts reach {_spread(counted)} % of the visits of update {EARLY}."
    return "\n".join([*lines, "", told])


def runtime(kept: Sequence[Kept]) -> str:
    """Median seconds of an update by phase, the mean over the seeds, and its share."""
    seconds = {name: float(np.mean([one.manifest["seconds"].get(name, 0.0) for one in kept])) for name in PHASES}
    total = sum(seconds.values())
    lines = ["| phase | seconds | share, % |", "| --- | --- | --- |"]
    lines += [f"| {name} | {spent:.4f} | {100 * spent / total:.2f} |" for name, spent in seconds.items()]
    spent = sum(seconds[name] for name in CREDIT)
    told = f"Credit of both kinds takes {spent:.4f} s of {total:.1f} s, {100 * spent / total:.3f} %."
    return "\n".join(lines) + f"\n\nMedians of {len(kept)} seeds, averaged. {told}"


def _early(kept: Kept, name: str) -> float:
    return float(np.mean([value for value in kept.curve.get(name, [])[:EARLY] if value is not None]))


def _spread(values: Sequence[float]) -> str:
    return f"{100 * float(np.mean(values)):.1f} ({100 * min(values):.1f} to {100 * max(values):.1f})"
