"""Reads configs: one YAML file defines a whole run. An unknown key is an error that names the nearest known key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from crbc_rl.config.extensions import locate
from crbc_rl.config.sections import RunConfig, TrainConfig
from crbc_rl.errors import ConfigError, nearest

Config = TypeVar("Config", bound=RunConfig)


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a config file and apply `section.key=value` overrides.

    Raises `ConfigError` naming the file and the key.
    """
    data = read_mapping(path)
    for override in overrides:
        _set(data, override)
    return parse_config(data, str(path), path.parent)


def read_mapping(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file. Raises `ConfigError` naming the file."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a config is a mapping of keys to values")
    return data


def parse_config(data: dict[str, Any], where: str, base: Path = Path()) -> TrainConfig:
    """Validate plain data; relative paths are taken from `base`. Raises `ConfigError` naming `where` and the key."""
    config = parse(TrainConfig, data, where, base)
    folder = (base / config.model).resolve()
    on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", config.model) and not folder.is_dir()
    return config if on_hub else config.model_copy(update={"model": str(folder)})


def parse(kind: type[Config], data: dict[str, Any], where: str, base: Path) -> Config:
    """A config of `kind` from plain data, with its template's text and the places of the modules that it names.

    A module that the data does not place is searched in `base`, in the current folder and among what is installed.
    """
    try:
        config = kind.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(where, kind, error)) from error
    env = config.env
    if env.template is None and env.prompt.endswith(".j2"):
        config = config.model_copy(update={"env": env.model_copy(update={"template": _text(base / env.prompt, where)})})
    modules = dict(config.modules)
    for key, name in config.extensions():
        module = name.partition(":")[0]
        if module not in modules:
            modules[module] = locate(module, (base, Path.cwd()), f"{where}: {key}")
    return config.model_copy(update={"modules": modules})


def _text(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: env.prompt: {path} cannot be read: {error}") from error


def _set(data: dict[str, Any], override: str) -> None:
    name, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"--set {override}: write it as section.key=value")
    *sections, key = name.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override}: {section!r} is not a section")
    data[key] = yaml.safe_load(value)


def explain(where: str, model: type[BaseModel], error: ValidationError) -> str:
    """One line on what is wrong in the config `where`: each key, its value, and the nearest known key."""
    return f"{where}: " + "; ".join(_explain(model, problem) for problem in error.errors())


def _explain(model: type[BaseModel], problem: Any) -> str:
    *sections, key = problem["loc"] or ("",)
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] != "extra_forbidden":
        cause = problem.get("ctx", {}).get("error", problem["msg"])
        shown = "" if isinstance(problem["input"], dict) else f" (got {problem['input']!r})"
        return f"{name}: {cause}{shown}" if name else str(cause)
    for section in sections:
        annotation = model.model_fields[str(section)].annotation
        assert isinstance(annotation, type)
        model = annotation
    return f"unknown key {name!r}{nearest(str(key), model.model_fields)}"
