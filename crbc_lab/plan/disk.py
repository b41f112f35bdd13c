"""The disk that a run takes at most, computed from shapes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from crbc_lab.plan.architecture import Architecture
from crbc_lab.plan.memory import trained
from crbc_rl.config import CRITIC, KEEP, TrainConfig

FLOAT = 4
"""Bytes of a saved weight, and of each of Adam's two moments of it."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes that a run's folder takes: of one `model`, of one `checkpoint`, and of all that lies there at its `peak`,
    while a checkpoint and the best policy are written and those before them are still there. Recorded rollouts and
    metrics come in addition."""

    model: int
    checkpoint: int
    peak: int


def disk(config: TrainConfig, model: Architecture) -> Disk:
    """The disk that a run of `config` takes. A model that is a folder is copied into the run; one of the hub is not."""
    weights, factors = FLOAT * model.parameters, trained(config, model)
    checkpoint = weights + 2 * FLOAT * factors
    if config.policy.lora_rank:
        checkpoint += FLOAT * factors
    if config.credit.method == CRITIC:
        checkpoint += 3 * weights
    copied = weights if Path(config.model).is_dir() else 0
    return Disk(weights, checkpoint, peak=(KEEP + 1) * checkpoint + 2 * weights + copied)


def free(folder: Path) -> int:
    """Bytes that are free where `folder` is, or would be made."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
