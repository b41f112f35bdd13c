"""What a study states before it is run. Afterwards a training of other settings, or of another seed, is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from crbc_envs.storage.files import read_json, replace_file
from crbc_lab.studies.comparison.definition import Scale, Study
from crbc_lab.studies.comparison.trainings import Training, trainings, tunings
from crbc_rl.errors import ConfigError


def write_plan(study: Study, scale: Scale, results: Path) -> Path:
    """State all settings of a study. Raises `ConfigError` where a plan is stated already, and differs."""
    path = _place(study.name, scale, results)
    seeds = {env: [one.first_seed, one.first_seed + one.seeds - 1] for env, one in study.settings[scale].items()}
    told = {
        "title": study.title,
        "asks": study.asks,
        "measure": "success of the last policy on the test tasks, an episode each",
        "family": f"the variants of a setting, each against {study.reference}; two-sided, Holm",
        "candidates": "chosen by the mean of the last two validations with one seed that is not of the table",
        "stops": "when all seeds are finished",
        "seeds": seeds,
        "trainings": _digests(study, scale),
    }
    if path.is_file() and read_json(path) != told:
        raise ConfigError(f"{path} states {study.name} already, otherwise: name a changed study otherwise")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(told, indent=1) + "\n").encode())
    return path


def check_plan(study: Study, scale: Scale, results: Path, needed: Iterable[Training]) -> None:
    """Raise `ConfigError` for a training that the study's plan, if there is one, does not state."""
    path = _place(study.name, scale, results)
    if not path.is_file():
        return
    plan = read_json(path)
    tuned = {one.place for env in study.settings[scale] for _, _, one in tunings(study, scale, env)}
    for one in needed:
        low, high = plan["seeds"].get(one.env, (0, -1))
        if plan["trainings"].get(_key(one)) != one.with_seed(0).digest:
            raise ConfigError(f"{path} states {_key(one)} otherwise: run it as it is stated, or as another study")
        if one.place not in tuned and not low <= one.seed <= high:
            raise ConfigError(f"{path} states the seeds {low} to {high} of {one.env}, and not {one.seed}")


def _digests(study: Study, scale: Scale) -> dict[str, str]:
    """The digest of every training that may be needed, with seed 0: which candidates are chosen shows later."""
    most = max(len(variant.candidates) for variant in study.variants.values())
    needed = [one for env in study.settings[scale] for _, _, one in tunings(study, scale, env)]
    for number in range(max(1, most)):
        chosen = {name: one.candidates[number] for name, one in study.variants.items() if one.candidates}
        needed += [one for env in study.settings[scale] for one in trainings(study, scale, env, 1, chosen)]
    return {_key(one): one.with_seed(0).digest for one in needed}


def _key(training: Training) -> str:
    return f"{training.env}/{training.key}"


def _place(name: str, scale: Scale, results: Path) -> Path:
    return results / "plans" / f"{name}-{scale}.json"
