"""What a run requires on a machine: an environment with its data, packages, and the model's files."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.errors import DataError, RequirementError
from crbc_envs.vector.members import make_member
from crbc_rl.config import TrainConfig
from crbc_rl.plan.architecture import Architecture, has_weights
from crbc_rl.plan.findings import Finding, package


@dataclass(frozen=True, slots=True)
class Requirements:
    """The result of the checks: in `errors` why the config can never work, in `findings` what is missing here."""

    max_steps: int
    panels: dict[str, int]
    """Number of tasks by split; empty where the data is not installed."""
    errors: tuple[str, ...]
    findings: tuple[Finding, ...]


def check_requirements(config: TrainConfig, model: Architecture | None) -> Requirements:
    """Make the config's environment for each split, as training does, and check packages and files."""
    errors: list[str] = []
    findings = [*_model(config, model), *_packages(config)]
    panels: dict[str, int] = {}
    creator = _creator(config.env.id)
    if creator is None:
        return Requirements(1, panels, (f"env.id: no environment {config.env.id!r} is registered",), tuple(findings))
    try:
        for split in ("train", "validation", "test"):
            made = make_member(config.env.id, {**config.env.kwargs, "split": split, "require_tags": True})
            panels[split] = len(made.panel)
            made.close()
    except DataError as error:
        findings.append(Finding("data", "-", str(error), config.env.id))
    except RequirementError as error:  # packages or programs; each environment knows its own
        findings.append(Finding("environment", "-", str(error), config.env.id))
    except (TypeError, ValueError) as error:
        errors.append(f"env.kwargs: {error}")
    errors += _mismatches(config, creator, panels, model)
    return Requirements(_max_steps(creator, config.env.kwargs), panels, tuple(errors), tuple(findings))


def _creator(env_id: str) -> Any:
    """The class of an environment id, or None for an id that is not registered."""
    try:
        entry = gymnasium.spec(env_id).entry_point
    except gymnasium.error.Error:
        return None
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _max_steps(creator: Any, kwargs: dict[str, Any]) -> int:
    """`max_steps` of the config, or its default in the class or a base class."""
    if "max_steps" in kwargs:
        return int(kwargs["max_steps"])
    for kind in inspect.getmro(creator) if inspect.isclass(creator) else (creator,):
        parameter = inspect.signature(kind).parameters.get("max_steps")
        if parameter is not None and parameter.default is not parameter.empty:
            return int(parameter.default)
    return 1


def _mismatches(config: TrainConfig, creator: Any, panels: dict[str, int], model: Architecture | None) -> Iterator[str]:
    """Where the environment does not fit the rest of the config."""
    styles = getattr(creator, "templates", {})
    if config.env.prompt not in styles:
        yield f"env.prompt: {config.env.id} has no style {config.env.prompt!r}; known: {', '.join(styles) or 'none'}"
    if config.env.prompt == "image" and config.env.kwargs.get("observation", "rgb") != "rgb":
        yield "env.prompt: the style 'image' needs env.kwargs.observation=rgb"
    if config.env.prompt == "image" and model is not None and not model.vision:
        yield f"env.prompt: {config.model} sees no images; choose another style, or a vision model"
    for split, key, wanted in (
        ("validation", "eval.episodes", config.eval.episodes),
        ("test", "eval.test_episodes", config.eval.test_episodes),
    ):
        if wanted > panels.get(split, wanted):
            yield f"{key}: {wanted} episodes, and the {split} panel has {panels[split]:,} tasks"


def _model(config: TrainConfig, model: Architecture | None) -> Iterator[Finding]:
    place = Path(config.model)
    fix = f"put a transformers checkpoint into {place}" if place.is_absolute() else f"hf download {config.model}"
    if model is None:
        also = "" if place.is_absolute() else ", or add --online to read its shape from the hub"
        yield Finding("model", "-", fix + also, "parameters, context and memory in this plan; training")
    elif not has_weights(config.model):
        yield Finding("model's weights", f"only {model.source}", fix, "training")


def _packages(config: TrainConfig) -> Iterator[Finding]:
    """Missing packages that this config needs and others do not."""
    needs = (
        (config.generator.engine == "vllm", "vllm", "[vllm]", "generator.engine=vllm"),
        (config.rollout.backend == "ray", "ray", "[ray]", "rollout.backend=ray"),
    )
    for needed, name, extra, purpose in needs:
        if needed and not (found := package(name, extra, purpose)).ok:
            yield found
