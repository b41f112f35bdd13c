"""Which candidate of each variant did best on validation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crbc_lab.studies.comparison.definition import Changes, Scale, Study
from crbc_lab.studies.comparison.kept import Kept, find
from crbc_lab.studies.comparison.trainings import Training, tunings
from crbc_rl.errors import ConfigError


def best_candidates(study: Study, scale: Scale, env: str, results: Path) -> dict[str, Changes]:
    """For each variant with candidates the one with the highest validation success, the first of equals.

    It is the mean over the last two validations. Raises `ConfigError` where a training is missing.
    """
    scores: dict[str, list[float]] = {}
    for name, _, training in tunings(study, scale, env):
        scores.setdefault(name, []).append(validated(_required(training, results)))
    return {name: study.variants[name].candidates[int(np.argmax(found))] for name, found in scores.items()}


def all_tried(study: Study, scale: Scale, env: str, results: Path) -> bool:
    """Whether every candidate has its training, so that the best are known."""
    return all(find(training, results) is not None for _, _, training in tunings(study, scale, env))


def validated(kept: Kept) -> float:
    """The mean success of the last two validations."""
    return float(np.mean(kept.validation["success"][-2:]))


def _required(training: Training, results: Path) -> Kept:
    found = find(training, results)
    if found is None:
        raise ConfigError(f"{results}: {training.place} is missing or of other settings; run its study again")
    return found
