"""What a study states before it is run. Afterwards a training of other settings, or of another seed, is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import read_json, replace_file
from crbc_lab.studies.comparison.definition import TUNING_SEED, Scale, Study
from crbc_lab.studies.comparison.kept import find
from crbc_lab.studies.comparison.trainings import Training, trainings, tunings
from crbc_rl.errors import ConfigError

BY_SETTING = ("seeds", "rows", "trainings")
"""What a plan says of each setting. A setting that the study has no more is of no concern."""


def write_plan(study: Study, scale: Scale, results: Path) -> Path:
    """State all settings of a study. Raises `ConfigError` where a plan is stated already and differs, and where a
    training that it would state is finished, and no other plan stated it."""
    path = plan_file(study, scale, results)
    if path.is_file():
        check_plan(study, scale, results)
        return path
    stated = {digest for other in path.parent.glob("*.json") for digest in read_json(other)["trainings"].values()}
    needed = [one for env in study.settings.get(scale, {}) for one in _needed(study, scale, env)]
    if done := next((one for one in needed if find(one, results) and one.with_seed(0).digest not in stated), None):
        known = "what is known already cannot be stated beforehand; take an empty folder by --results, or other seeds"
        raise ConfigError(f"{done.place} is finished in {results}: {known}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(_told(study, scale), indent=1) + "\n").encode())
    return path


def _told(study: Study, scale: Scale) -> dict[str, Any]:
    """What a plan says of a study."""
    settings = study.settings.get(scale, {})
    needed = [one for env in settings for one in _needed(study, scale, env)]
    return {
        "title": study.title,
        "asks": study.asks,
        **({"power": study.power} if study.power else {}),
        "measure": "success of the last policy on the test tasks, an episode each",
        "family": f"the variants of a setting, each against {study.reference}; two-sided, Holm",
        "candidates": "chosen by the mean of the last two validations with one seed that is not of the table",
        "stops": "when all seeds are finished; a table of fewer says so",
        "seeds": {env: [one.numbers[0], one.numbers[-1]] for env, one in settings.items()},
        "rows": {env: {name: study.reference_of(name) for name in study.rows(scale, env)} for env in settings},
        "trainings": {f"{one.env}/{one.key}": one.with_seed(0).digest for one in needed},
    }


def check_plan(study: Study, scale: Scale, results: Path, needed: Iterable[Training] = ()) -> None:
    """Raise `ConfigError` where the settings of a study are not as its plan, if there is one, states them, and for one
    of its trainings whose seed that does not state."""
    path = plan_file(study, scale, results)
    if not path.is_file():
        return
    plan, told = read_json(path), _told(study, scale)
    known = [name for name in BY_SETTING if name in plan]  # older plans have no rows
    stated = {name: {k: v for k, v in plan[name].items() if k.split("/")[0] in told["seeds"]} for name in known}
    changed = [name for name in {**told, **plan} if name not in BY_SETTING and plan.get(name) != told.get(name)]
    changed += sorted(k for n in known for k in {**told[n], **stated[n]} if told[n].get(k) != stated[n].get(k))
    if changed:
        raise ConfigError(f"{path} states {changed[0]} otherwise: run it as it is stated, or as another study")
    for one in needed:
        low, high = plan["seeds"][one.env]
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


def plan_file(study: Study, scale: Scale, results: Path) -> Path:
    return results / "plans" / f"{study.name}-{scale}.json"
