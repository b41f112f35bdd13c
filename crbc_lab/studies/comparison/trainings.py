"""The trainings of a study. One that two studies have in common is one training: its place names what it differs in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import read_json
from crbc_lab.studies.comparison.definition import TUNING_SEED, Changes, Scale, Study, Variant
from crbc_rl.config import flat
from crbc_rl.config.revisions import MADE_OF, model_digest
from crbc_rl.config.sections import TrainConfig

FREE = ("name", "seed", "model", "modules", "tracking", "save_every", "record_every")
"""Keys that are no part of a training's digest: they name it, or do not change what is learned. The model's files, the
modules' and the seed go in by themselves."""

EARLY = 5
"""The update whose rollouts are recorded at the lab's scale, and each of its multiples: evidence coverage is counted on
those of an early policy, as in the paper."""


@dataclass(frozen=True, slots=True)
class Training:
    """One training of a variant, with the config as it is run. `key` tells what it differs in from its setting, such as
    "crbc,beta=0.95"."""

    scale: Scale
    env: str
    key: str
    config: TrainConfig

    @property
    def seed(self) -> int:
        return self.config.seed

    def with_seed(self, seed: int) -> Training:
        return replace(self, config=self.config.model_copy(update={"seed": seed}))

    @property
    def place(self) -> Path:
        """Its folder among runs, and its file's name among results."""
        return Path(self.scale, self.env, self.key, f"seed{self.seed}")

    @property
    def digest(self) -> str:
        """SHA-256 of all that determines the result on one machine: the config, the modules that it names, the model's
        files and the seed.

        Keys with their default count as absent, so that a new key leaves the digests of before as they are.
        """
        settings = self.config.model_dump(mode="json", exclude=set(FREE), exclude_defaults=True)
        if self.config.modules:
            settings["modules"] = {name: module.sha256 for name, module in self.config.modules.items()}
        model = _model(self.config.model)
        text = json.dumps({**settings, "seed": self.seed, "model": model}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@cache
def _model(name: str) -> str:
    """The digest of a model's folder; of an adapter its own, which a run that has merged it with its base tells."""
    if (origin := Path(name, MADE_OF)).is_file():
        return str(read_json(origin)["adapter_digest"])
    return model_digest(Path(name)) if Path(name).is_dir() else name


def trainings(study: Study, scale: Scale, env: str, seeds: int, chosen: Mapping[str, Changes]) -> Iterator[Training]:
    """The trainings of one setting, seed after seed, so that an interrupted study has all variants of the first seeds.

    `chosen` has for each variant with candidates the one that was chosen (`best_candidates`).
    """
    variants = [(study.variants[name], chosen.get(name, {})) for name in study.rows(scale, env)]
    start = study.setting(scale, env).first_seed
    first = [_training(study, scale, env, {**variant.set, **candidate}, 0) for variant, candidate in variants]
    for seed in range(start, min(start + seeds, TUNING_SEED)):  # candidates are chosen with that one
        yield from (one.with_seed(seed) for one in first)


def tunings(study: Study, scale: Scale, env: str) -> Iterator[tuple[str, int, Training]]:
    """The trainings that candidates are chosen with: (variant, number of the candidate, training).

    There are none at the paper's scale, where the paper's settings are used.
    """
    if scale != "lab":
        return
    setting = study.setting(scale, env)
    for name in study.rows(scale, env):
        variant = study.variants[name]
        for number, candidate in enumerate(variant.candidates):
            changes = {**variant.set, **candidate, **setting.set_tuning}
            yield name, number, _training(study, scale, env, changes, TUNING_SEED)


def count(study: Study, scale: Scale, env: str) -> int:
    """The number of trainings of one setting, by their changes: which candidates are chosen makes no difference."""
    setting, rows = study.setting(scale, env), [study.variants[name] for name in study.rows(scale, env)]
    tried = [{**one.set, **candidate, **setting.set_tuning} for one in rows for candidate in one.candidates]
    alone, tuned = (
        {json.dumps(changes, sort_keys=True) for changes in each}
        for each in ([one.set for one in rows], tried if scale == "lab" else [])
    )
    return len(alone) * setting.seeds + len(tuned)


def key_of(study: Study, scale: Scale, env: str, variant: Variant, candidate: Changes | None = None) -> str:
    """The key of a variant's trainings."""
    return _training(study, scale, env, {**variant.set, **(candidate or {})}, 0).key


def _training(study: Study, scale: Scale, env: str, changes: Changes, seed: int) -> Training:
    config, base = study.config(scale, env, changes), study.config(scale, env, {})
    key = _key(flat(base.model_dump(mode="json")), config)
    own = {"name": f"{env}-{scale}", "seed": seed, **({"record_every": EARLY} if scale == "lab" else {})}
    return Training(scale, env, key, config.model_copy(update=own))


def _key(base: Mapping[str, Any], config: TrainConfig) -> str:
    """The method, and what else differs from the setting's config; a folder's name."""
    values = flat(config.model_dump(mode="json", exclude={"modules"}))
    skipped = {"credit.method", "seed", "name"}
    changed = sorted(name for name in values if name not in skipped and values[name] != base.get(name))
    method = config.credit.method.rpartition(":")[2]  # of "module:function", whose section has the function's name
    # A section of another method counts only where that method is run.
    others = re.compile(rf"credit\.(?!{re.escape(method)}\.)\w+\.")
    short = re.compile(rf"credit\.{re.escape(method)}\.|optim\.")
    parts = [f"{short.sub('', name)}={_value(values[name])}" for name in changed if not others.match(name)]
    return ",".join([method, *parts])


def _value(value: Any) -> str:
    text = "full" if value is None else value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text)
