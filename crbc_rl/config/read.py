"""Reads configs: one YAML file defines a whole run. An unknown key is an error that names the nearest known key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from crbc_envs.storage.files import shown
from crbc_rl.config.extensions import locate
from crbc_rl.config.protocols import fill
from crbc_rl.config.sections import RunConfig, TrainConfig
from crbc_rl.config.text import parse_yaml
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.names import find_config
from crbc_rl.pretrained import local_model

Config = TypeVar("Config", bound=RunConfig)


def load_config(path: Path | str, overrides: Sequence[str] = (), also: Path | None = None) -> TrainConfig:
    """Read the config file `path`, or one that comes with the package by its name, and apply `overrides`.

    An override is a text "section.key=value". Paths in a file are relative to its folder, paths in overrides and in a
    pipe to the current folder. Modules are searched in `also` first. Raises `ConfigError` naming the file and the key.
    """
    path = find_config(Path(path))
    data = read_mapping(path)
    if "out" in data:
        raise ConfigError(f"{path} is the config of a warm start: crbc warmstart {path}")
    if "agent" in data:
        raise ConfigError(f"{path} is the config of a prompting agent: crbc agents {quote(str(path))}")
    for override in overrides:
        set_value(data, override)
    base = Path() if path.is_fifo() else path.parent
    return parse_config(data, f"{path} with --set" if overrides else str(path), base, also)


def read_mapping(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file. Raises `ConfigError` naming the file."""
    try:
        text = path.read_bytes().decode()  # a pipe too, as `crbc train <(make-config)` gives one
    except OSError as error:
        what = "it is a folder" if path.is_dir() else error.strerror or error
        raise ConfigError(f"{path}: {what}; name a config, a YAML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not YAML: byte {error.start} is not UTF-8 text; name a config") from error
    data = parse_yaml(text, f"{path} is not YAML")
    if isinstance(data, dict) and isinstance(data.get("defaults"), dict):
        del data["defaults"]  # where a config keeps what its own sections refer to: `defaults: &d`, `<<: *d`
    if not isinstance(data, dict):
        content = "is empty" if data is None else f"holds {shown(data)}"
        raise ConfigError(f"{path} {content}: a config is a mapping of keys to values, such as name: my-run")
    return data


def parse_config(data: dict[str, Any], where: str, base: Path = Path(), also: Path | None = None) -> TrainConfig:
    """Validate plain data; relative paths are taken from `base`. Raises `ConfigError` naming `where` and the key."""
    given = data.get("model")
    if isinstance(given, dict):
        if set(given) != {"base", "adapter"} or not all(isinstance(value, str) for value in given.values()):
            raise ConfigError(f"{where}: model: a name or a folder is wanted, or {{base: ..., adapter: ...}} of both")
        data = {**data, "model": given["adapter"], "base": given["base"]}
    config = parse(TrainConfig, fill(data), where, base, also)
    folder = local_model(base, config.model)
    on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", config.model) and not folder.is_dir()
    return config if on_hub else config.model_copy(update={"model": str(folder)})


def parse(kind: type[Config], data: dict[str, Any], where: str, base: Path, also: Path | None = None) -> Config:
    """A config of `kind` from plain data, with its template's text and the places of the modules that it names.

    A module that the data does not place is searched in `also`, `base`, the current folder and what is installed.
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
            modules[module] = locate(module, (also or base, base, Path.cwd()), f"{where}: {key}")
    return config.model_copy(update={"modules": modules})


def _text(path: Path, where: str) -> str:
    if path.is_symlink() and path.resolve().suffix != path.suffix:  # its text would travel in every prompt
        raise ConfigError(f"{where}: env.prompt: {path} is a link to {path.resolve()}, which is no template")
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: env.prompt: {path} cannot be read: {error}") from error
    if not text.strip():
        raise ConfigError(f"{where}: env.prompt: {path} is empty; write a template there")
    return text


def set_value(data: dict[str, Any], override: str) -> None:
    """Set what an override `section.key=value` says in plain data. Raises `ConfigError` where it says nothing."""
    name, equals, value = override.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set {override}: write it as section.key=value")
    *sections, key = name.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override}: {section!r} is not a section")
    data[key] = parse_yaml(value, f"--set {override}: the value is not YAML")
    if name == "env.prompt":
        data["template"] = None  # the text of the prompt before it
    if name in ("model", "env.prompt") and value and Path(value).exists():
        data[key] = str(Path(value).resolve())  # typed in the current folder, not in the config's


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a config by their dotted names."""
    flattened: dict[str, Any] = {}
    for name, value in data.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flattened


def explain(where: str, model: type[BaseModel], error: ValidationError) -> str:
    """One line on what is wrong in the config `where`: each key, its value, and the nearest known key."""
    return f"{where}: " + "; ".join(_explain(model, problem) for problem in error.errors())


def _explain(model: type[BaseModel], problem: Any) -> str:
    *sections, key = problem["loc"] or ("",)
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] != "extra_forbidden":
        cause = problem.get("ctx", {}).get("error", problem["msg"])
        given = "" if isinstance(problem["input"], dict) else f" (got {shown(problem['input'])})"
        return f"{name}: {cause}{given}" if name else str(cause)
    for section in sections:
        annotation = model.model_fields[str(section)].annotation if str(section) in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return f"unknown key {name!r}"
        model = annotation
    if not sections and (inner := _inner(model, str(key))):
        return f"unknown key {name!r}; did you mean {' or '.join(map(repr, inner))}?"
    return f"unknown key {name!r}{nearest(str(key), model.model_fields)}"


def _inner(model: type[BaseModel], key: str) -> list[str]:
    """The keys of that name in sections of `model`."""
    kinds = ((name, field.annotation) for name, field in model.model_fields.items())
    sections = ((name, of) for name, of in kinds if isinstance(of, type) and issubclass(of, BaseModel))
    return [f"{name}.{key}" for name, of in sections if key in of.model_fields]
