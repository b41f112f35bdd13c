"""What commands are given, a config, a run or a model: by its path, or by its name in any folder.

A name is that of a run in `runs/`, of a config or a warm start that comes with the package, or of a fetched pretrained
model. The former are `configs/` and `warmstarts/` in a clone; the wheel holds both in `crbc_rl/shipped/`. This file
imports no package that is slow, so that a wrong name is told at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from crbc_rl.errors import ConfigError, nearest
from crbc_rl.pretrained import PRETRAINED, command_for, folder_of, models_home

Kind = Literal["config", "run", "model"]

_PACKAGE = Path(__file__).resolve().parent
STUDIES, VERL = "studies", "verl"
"""The folders of configs that are no trainings: they name several, or are verl's."""
RUNS = Path("runs")
WARMSTART = "warmstart.json"
"""The recipe of a warm start, in its folder."""
ADAPTER = "adapter_config.json"
"""What says that a folder has a LoRA adapter of peft's."""
_WHAT: dict[Kind, str] = {"config": "config (a YAML file)", "run": "run folder", "model": "model folder"}
_YAML = (".yaml", ".yml", ".json")


class Found(NamedTuple):
    """A config's file, or the folder of a run or a model."""

    kind: Kind
    path: Path


def shipped() -> Path:
    """The folder that holds `configs` and `warmstarts`."""
    inside = _PACKAGE / "shipped"
    return inside if inside.is_dir() else _PACKAGE.parent


def names() -> dict[str, Path]:
    """The shipped configs by name: "sokoban-tiny", "paper/webshop-qwen2.5-7b"."""
    folder = shipped() / "configs"
    paths = [path for path in sorted(folder.rglob("*.yaml")) if path.parent.name not in (STUDIES, VERL)]
    return {_name(path.relative_to(folder).with_suffix("").as_posix()): path for path in paths}


def studies() -> list[str]:
    """The names of the shipped studies, each a file of `configs/studies`."""
    return sorted(path.stem for path in (shipped() / "configs" / STUDIES).glob("*.yaml"))


def _named(kind: Kind) -> dict[str, Path]:
    """What has a name: the shipped configs and warm starts, the fetched models, and the runs in `runs/`."""
    if kind == "config":
        return names()
    if kind == "run":
        return {path.parent.name: path.parent for path in sorted(RUNS.glob("*/config.yaml"))}
    fetched = [models_home() / name / "config.json" for name in PRETRAINED]
    paths = [*sorted((shipped() / "warmstarts").glob(f"*/{WARMSTART}")), *filter(Path.is_file, fetched)]
    return {path.parent.name: path.parent for path in paths}


def known(given: Path, *kinds: Kind) -> Found | None:
    """What has that name, of the first of `kinds` that there is; `-` and `_` are the same in names of what comes with
    crbc."""
    short = _name(given.as_posix().removesuffix(".yaml"))
    for kind in kinds:
        named = _named(kind)
        if path := named.get(str(given)) or named.get(short):
            return Found(kind, path)
    return None


def find(given: Path, *kinds: Kind) -> Found:
    """What is at the path `given`, or else `known` by that name.

    Raises `ConfigError` where there is nothing of these kinds, with the nearest name.
    """
    there = _kind(given)
    if there in kinds:
        return Found(there, given)
    if found := known(given, *kinds):
        return found
    if "model" in kinds and (place := folder_of(str(given))):
        raise ConfigError(f"{given} is a pretrained model that is not here yet: {command_for(place)}")
    wanted = " or ".join(_WHAT[kind] for kind in kinds)
    if given.exists():
        what = f"is a {_WHAT[there]}" if there else "has neither config.yaml nor config.json"
        raise ConfigError(f"{given} {what}; name a {wanted}{_near(given, kinds)}")
    if given.suffix in _YAML and (name := _name(given.stem)) in names() and "config" in kinds:
        raise ConfigError(f"{given}: No such file; did you mean {name!r}, which comes with crbc?")
    if given.suffix in _YAML or given.is_absolute():
        raise ConfigError(f"{given}: No such file or folder{_near(given, kinds)}")
    raise ConfigError(
        f"no {wanted} {str(given)!r}: no such file, and none of that name comes with crbc{_near(given, kinds)}"
    )


def find_config(given: Path) -> Path:
    """The file `given`, the shipped config of that name, or that of a run. Raises `ConfigError` as `find` does."""
    kind, path = find(given, "config", "run")
    return path / "config.yaml" if kind == "run" else path


def installed(path: Path) -> bool:
    """Whether a config is a file of the installed package, beside which nothing may be written."""
    return path.resolve().is_relative_to(_PACKAGE / "shipped")


def _kind(path: Path) -> Kind | None:
    if path.is_dir():
        if (path / "config.yaml").is_file():
            return "run"
        return "model" if any((path / name).is_file() for name in ("config.json", ADAPTER)) else None
    return "config" if path.exists() else None  # a pipe too


def _near(given: Path, kinds: tuple[Kind, ...]) -> str:
    """The end of a message: the nearest of what lies beside `given`, or else has a name."""
    beside = [
        path.name
        for path in given.parent.glob("*")
        if (path.suffix in _YAML and "config" in kinds if path.is_file() else _kind(path) in kinds)
    ]
    if given.suffix in _YAML or (given.parent.is_dir() and given.parent != Path()):
        return nearest(given.name, beside) if beside else ""
    others = [*beside, *(name for kind in kinds for name in _named(kind)), *(PRETRAINED if "model" in kinds else ())]
    return nearest(str(given), others) if others else ""


def _name(text: str) -> str:
    return text.replace("_", "-").lower()
