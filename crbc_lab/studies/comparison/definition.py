"""What a study compares: variants of one training, in one or several settings. One YAML file in `configs/studies`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crbc_rl.config import load_config, read_mapping
from crbc_rl.config.read import explain
from crbc_rl.config.sections import TrainConfig
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.names import STUDIES, shipped, studies

Scale = Literal["lab", "paper"]
SCALES: tuple[Scale, ...] = ("lab", "paper")
GPUS: Mapping[Scale, int] = {"lab": 1, "paper": 8}
"""Processes of one training, one for each GPU of the paper's node. A tiny agent has one, with or without a GPU."""

Changes = dict[str, Any]
"""Values of config keys by their dotted names, such as {"credit.method": "gigpo"}."""

MOST_SEEDS = 20
"""Seeds that are looked for in the results, also where a setting asks for fewer."""
TUNING_SEED = 1_000
"""The first seed of the trainings that candidates are chosen with. Those of a study are below it."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Setting(_Part):
    """Where variants are compared: a config, with changes that hold for all of them."""

    config: str
    """Relative to the study's file, or the name of one that comes with the package."""
    set: Changes = Field(default_factory=dict)
    variants: list[str] | None = Field(None, min_length=1)
    """Those that are trained here; by default all."""
    seeds: int = Field(3, ge=1, le=100)
    first_seed: int = Field(0, ge=0, lt=TUNING_SEED)
    minutes: float = Field(0.0, ge=0)
    """Of one training, on one core; 0 where nobody has measured it."""
    set_tuning: Changes = Field(default_factory=dict)
    """Further changes for the trainings that candidates are chosen with, such as fewer updates."""
    less: str = ""
    """Another setting, whose differences are subtracted from those of this one."""

    @property
    def numbers(self) -> range:
        """Its seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @model_validator(mode="after")
    def _seeds_are_not_of_the_tuning(self) -> Setting:
        if self.numbers.stop > TUNING_SEED:
            raise ValueError(f"first_seed + seeds is above {TUNING_SEED}, the seed that candidates are chosen with")
        return self


class Variant(_Part):
    """One row of a study. `candidates` are tried on validation with one seed each, and the best of them is trained with
    all seeds. The first one is the method's own default."""

    label: str
    set: Changes = Field(default_factory=dict)
    reference: str = ""
    """The variant that this one is compared with, where it is not the study's."""
    candidates: list[Changes] = Field(default_factory=list, max_length=20)


class Study(_Part):
    """A study: its rows are `variants`, its settings are environments at one of two scales."""

    title: str
    asks: str
    """The question that it answers."""
    power: str = ""
    """What its plan says beforehand that it can find."""
    paper: list[str] = Field(default_factory=list)
    """Labels of the paper's tables and figures."""
    shows: Literal["comparison", "coverage", "runtime"] = "comparison"
    """What its table tells: how variants compare, or what was measured within the trainings of one."""
    reference: str
    """The variant that the others are compared with, unless they name one of their own."""
    settings: dict[Scale, dict[str, Setting]]
    variants: dict[str, Variant]
    name: str = ""
    file: Path = Path()

    @model_validator(mode="after")
    def _known(self) -> Study:
        used = [name for scale in self.settings.values() for one in scale.values() for name in one.variants or ()]
        named = [variant.reference for variant in self.variants.values() if variant.reference]
        for name in (self.reference, *named, *used):
            if name not in self.variants:
                raise ValueError(f"no variant {name!r}{nearest(name, self.variants)}")
        for own, one, others in ((own, one, scale) for scale in self.settings.values() for own, one in scale.items()):
            trained = one.variants or list(self.variants)
            other = others.get(one.less)
            if one.less and (other is None or one.less == own or len({*one.numbers} & {*other.numbers}) < 2):
                raise ValueError(f"less: {one.less!r} is no other setting of this scale with two seeds of {own!r}")
            for name in trained:
                peer = self.variants[name].reference
                if peer and (peer == name or peer not in trained):
                    raise ValueError(f"variant {name!r} is compared with {peer!r}, which must be another of {trained}")
        tried = {len(variant.candidates) for variant in self.variants.values()} - {0}
        if len(tried) > 1:
            raise ValueError(f"variants have {sorted(tried)} candidates; an equal budget needs as many for each")
        return self

    def reference_of(self, name: str) -> str:
        """The variant that one is compared with; "" for the study's reference itself."""
        return "" if name == self.reference else self.variants[name].reference or self.reference

    def setting(self, scale: Scale, env: str) -> Setting:
        """Raises `ConfigError` for a setting that the study does not have."""
        have = self.settings.get(scale, {})
        if env not in have:
            raise ConfigError(f"--env {env}: {self.name} has no such setting at --scale {scale}{nearest(env, have)}")
        return have[env]

    def rows(self, scale: Scale, env: str) -> list[str]:
        """The variants of a setting, in the study's order."""
        chosen = self.setting(scale, env).variants
        return [name for name in self.variants if chosen is None or name in chosen]

    def config(self, scale: Scale, env: str, changes: Changes) -> TrainConfig:
        """The setting's config with its changes and further ones. Raises `ConfigError` naming file and key."""
        setting = self.setting(scale, env)
        merged = {**setting.set, **changes}
        # JSON is YAML, so a value is read back as it is.
        overrides = tuple(f"{key}={json.dumps(value)}" for key, value in merged.items())
        beside, given = self.file.parent / setting.config, Path(setting.config)
        path = beside.resolve() if beside.is_file() or given.suffix == ".yaml" else given
        return _loaded(path, overrides, self.file.parent.resolve())


@cache
def _loaded(path: Path, overrides: tuple[str, ...], also: Path) -> TrainConfig:
    """A config that several seeds and studies have in common, checked once."""
    return load_config(path, overrides, also)


def load_study(given: str, also: Iterable[str] = ()) -> Study:
    """A study by its name or its file. `also` are other words that may have been meant.

    Raises `ConfigError` naming the file and the key.
    """
    path = shipped() / "configs" / STUDIES / f"{given.replace('-', '_')}.yaml"
    if not path.is_file():
        path = Path(given)
    if not path.is_file():
        raise ConfigError(
            f"no study {given!r}{nearest(given, [*studies(), *also], cutoff=0.6)}; `crbc study list` names them all"
        )
    if not re.fullmatch(r"[\w-]+", path.stem):  # that of its table, its picture and its mark in a page
        raise ConfigError(f"{path}: a study's name has letters, digits, - and _; rename the file")
    data = read_mapping(path)
    try:
        study = Study.model_validate({**data, "name": path.stem, "file": path.resolve()})
    except ValidationError as error:
        raise ConfigError(explain(str(path), Study, error)) from error
    return study
