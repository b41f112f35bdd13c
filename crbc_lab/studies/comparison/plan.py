"""What a study states before it is run. Afterwards a training of other settings, or of another seed, is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from crbc_envs.storage.files import read_json, replace_file
from crbc_lab.studies.comparison.definition import TUNING_SEED, Scale, Study
from crbc_lab.studies.comparison.kept import find
from crbc_lab.studies.comparison.trainings import Training, trainings, tunings
from crbc_rl.errors import ConfigError


def write_plan(study: Study, scale: Scale, results: Path) -> Path:
    """State all settings of a study. Raises `ConfigError` where a plan is stated already and differs, and where a
    training that it would state is finished, and no other plan stated it."""
    path, seeds, needed = _place(study.name, scale, results), {}, list[Training]()
    for env, setting in study.settings.get(scale, {}).items():
        seeds[env] = [setting.first_seed, setting.first_seed + setting.seeds - 1]
        needed += _needed(study, scale, env)
    told = {
        "title": study.title,
        "asks": study.asks,
        **({"power": study.power} if study.power else {}),
        "measure": "success of the last policy on the test tasks, an episode each",
        "family": f"the variants of a setting, each against {study.reference}; two-sided, Holm",
        "candidates": "chosen by the mean of the last two validations with one seed that is not of the table",
        "stops": "when all seeds are finished; a table of fewer says so",
        "seeds": seeds,
        "trainings": {_key(one): one.with_seed(0).digest for one in needed},
    }
    if path.is_file():
        if read_json(path) != told:
            raise ConfigError(f"{path} states {study.name} already, otherwise: name a changed study otherwise")
        return path
    stated = {digest for other in path.parent.glob("*.json") for digest in read_json(other)["trainings"].values()}
    if done := next((one for one in needed if find(one, results) and one.with_seed(0).digest not in stated), None):
        raise ConfigError(f"{done.place} is finished in {results}: what is known already cannot be stated beforehand")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(told, indent=1) + "\n").encode())
    return path


def planned_seeds(study: Study, scale: Scale, env: str, results: Path) -> int | None:
    """How many seeds the plan states for a setting; None without a plan."""
    path = _place(study.name, scale, results)
    low, high = read_json(path)["seeds"].get(env, (0, -1)) if path.is_file() else (0, -1)
    return high - low + 1 or None


def check_plan(study: Study, scale: Scale, results: Path, needed: Iterable[Training]) -> None:
    """Raise `ConfigError` for a training that the study's plan, if there is one, does not state."""
    path = _place(study.name, scale, results)
    if not path.is_file():
        return
    plan = read_json(path)
    for one in needed:
        low, high = plan["seeds"].get(one.env, (0, -1))
        if plan["trainings"].get(_key(one)) != one.with_seed(0).digest:
            raise ConfigError(f"{path} states {_key(one)} otherwise: run it as it is stated, or as another study")
        if one.seed != TUNING_SEED and not low <= one.seed <= high:
            raise ConfigError(f"{path} states the seeds {low} to {high} of {one.env}, and not {one.seed}")


def _needed(study: Study, scale: Scale, env: str) -> list[Training]:
    """Every training of a setting that may be needed: which candidates are chosen shows later."""
    needed = [one for _, _, one in tunings(study, scale, env)]
    seeds, rows = study.setting(scale, env).seeds, [study.variants[name] for name in study.rows(scale, env)]
    for number in range(max(len(variant.candidates) for variant in rows) if needed else 1):
        chosen = {n: one.candidates[number] for n, one in study.variants.items() if needed and one.candidates}
        needed += trainings(study, scale, env, seeds, chosen)
    return needed


def _key(training: Training) -> str:
    return f"{training.env}/{training.key}"


def _place(name: str, scale: Scale, results: Path) -> Path:
    return results / "plans" / f"{name}-{scale}.json"
