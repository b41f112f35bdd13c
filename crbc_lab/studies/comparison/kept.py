"""Reads what is kept of a training: one small JSON file in `results`, with its curve, its test by task and how it was
made.

A run folder has megabytes of weights; these files have kilobytes. Every table and figure is made of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbc_envs.storage.files import parse_json, read_bytes
from crbc_lab.statistics.outcomes import Floats
from crbc_lab.studies.comparison.definition import Changes, Scale, Study
from crbc_lab.studies.comparison.trainings import Training, tunings
from crbc_rl.errors import ConfigError

LARGEST = 4 << 20
"""Bytes of a kept file that is read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A finished training: `curve` has a list per metric, one entry an update, `validation` lists `update`, `success`
    and `reward_by_step`, which older files lack, `start` and `end` the test's figures. `coverage` is of the rollouts
    of update `EARLY`, empty where they were not recorded. `success` and `score` are arrays with one value per task of
    `panel`, which has its `name` and lists `task`, `kind`, `content` and `cluster` (digests of the task, and of what it
    shares with others)."""

    digest: str
    seed: int
    manifest: Mapping[str, Any]
    curve: Mapping[str, list[float]]
    validation: Mapping[str, list[float]]
    start: Mapping[str, float]
    end: Mapping[str, float]
    coverage: Mapping[str, Any]
    success: Floats
    score: Floats
    panel: Mapping[str, Any]


def place_of(training: Training, results: Path) -> Path:
    """The file in `results` that a training is kept in."""
    return (results / training.place).with_suffix(".json")


def find(training: Training, results: Path) -> Kept | None:
    """The kept file of a training; None where there is none, or one of other settings."""
    path = place_of(training, results)
    kept = read(path) if path.is_file() else None
    return kept if kept is not None and kept.digest == training.digest else None


def read(path: Path) -> Kept:
    """Read a kept file and its panel. Raises `ConfigError` naming a file that is damaged."""
    data = _read(path)
    try:
        success = np.array([int(each) for each in data["success"]], dtype=float)
        panel = _read(path.parents[1] / f"panel-{data['panel']}.json") | {"name": data["panel"]}
        score = success if data["score"] is None else np.array(data["score"], dtype=float)
        if not len(success) == len(score) == len(panel["task"]):
            raise ValueError("its test has another number of tasks than its panel")
        named = {name: data[name] for name in ("digest", "seed", "manifest", "curve", "validation", "start", "end")}
        return Kept(success=success, score=score, panel=panel, coverage=data.get("coverage", {}), **named)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error}): restore it, or remove it and run its study again") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_bytes(path, LARGEST))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}: restore it, or remove it and run its study again"
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is damaged: restore it, or remove it and run its study again")
    return data


# ---- candidates -----------------------------------------------------------------------------------


def best_candidates(study: Study, scale: Scale, env: str, results: Path) -> dict[str, Changes]:
    """For each variant with candidates the one with the highest validation success, the first of equals.

    It is `validated`. Raises `ConfigError` where a training is missing.
    """
    scores: dict[str, list[float]] = {}
    for name, _, training in tunings(study, scale, env):
        scores.setdefault(name, []).append(validated(_required(training, results)))
    return {name: study.variants[name].candidates[best_of(successes)] for name, successes in scores.items()}


def all_tried(study: Study, scale: Scale, env: str, results: Path) -> bool:
    """Whether every candidate has its training, so that the best are known."""
    return all(find(training, results) is not None for _, _, training in tunings(study, scale, env))


def best_of(successes: Sequence[float]) -> int:
    """The number of the highest, the first of equals: those that differ by the rounding of kept files alone."""
    return next(number for number, one in enumerate(successes) if one > max(successes) - 2e-5)


def validated(kept: Kept) -> float:
    """The mean success of the last two validations after training began."""
    pairs = zip(kept.validation["update"], kept.validation["success"], strict=True)
    return float(np.mean([success for update, success in pairs if update > 0][-2:]))


def _required(training: Training, results: Path) -> Kept:
    kept = find(training, results)
    if kept is None:
        raise ConfigError(f"{results}: {training.place} is missing or of other settings; run its study again")
    return kept
