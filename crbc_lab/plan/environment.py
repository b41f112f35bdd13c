"""Checks of a config's environment: its id, arguments, requirements, panels and first prompt."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.anchor_wrapper import MAX_STEPS
from crbc_envs.core import AnchorEnv
from crbc_envs.demonstrations import played_groups
from crbc_envs.errors import DataError, RequirementError
from crbc_envs.prompts import Prompt, PromptWindow
from crbc_envs.tasks import SPLITS, TaskPanel, rng
from crbc_envs.vector.members import INDEPENDENT, SHARED, LocalMembers, creator, dynamics_of, make_member, member_info
from crbc_lab.plan.findings import Finding
from crbc_rl import credit
from crbc_rl.config import RunConfig, TrainConfig
from crbc_rl.config.extensions import unknown_id
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.rollout.prompts import prompt_options


@dataclass(slots=True)
class EnvCheck:
    """The result of `check_env`: in `errors` what can never work, in `findings` what is missing on this machine."""

    max_steps: int = 1
    bounded: bool = True
    """False where the environment names no limit of steps, so that `max_steps` is an assumption."""
    tasks: dict[str, TaskPanel[Any]] = field(default_factory=dict)
    """The tasks by split; empty where the environment cannot be made here."""
    stochastic: bool = False
    dynamics: str = SHARED
    """What the copies of a group share, as in `GroupVectorEnv`."""
    prompt: Prompt | None = None
    """The first prompt of the first split."""
    errors: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def panels(self) -> dict[str, int]:
        """Number of tasks by split."""
        return {split: len(tasks) for split, tasks in self.tasks.items()}


def check_env(config: RunConfig, splits: Sequence[str] = SPLITS) -> EnvCheck:
    """Make the config's environment for each split that is played, and ask for the first prompt of the first one.

    Raises `ConfigError` where a module that the config names may not run, or cannot.
    """
    checked = EnvCheck()
    env_id = config.registered_id()
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    if spec is None:
        checked.errors.append(f"env.id: {unknown_id(config.env.id)}")
        return checked
    try:
        checked.max_steps = _max_steps(spec, config.env.kwargs)
        if inspect.isclass(kind := creator(spec)) and issubclass(kind, AnchorEnv):
            _window(config, kind, checked)  # also where the environment cannot be made here
        for split in splits:
            if not checked.errors:
                _play_one(config, spec, split, checked)
    except DataError as error:
        checked.findings.append(Finding("data", "-", str(error), env_id))
    except RequirementError as error:  # packages or programs; each environment knows its own
        checked.findings.append(Finding("environment", "-", str(error), env_id))
    except ModuleNotFoundError as error:
        checked.findings.append(Finding("environment", "-", f"install the package of {error.name!r}", env_id))
    except ConfigError as error:
        checked.errors.append(str(error))
    except gymnasium.error.Error as error:  # Gymnasium refuses it, or an optional part of Gymnasium is missing
        checked.errors.append(f"env.id: {error}")
    return checked


def _play_one(config: RunConfig, spec: EnvSpec, split: str, checked: EnvCheck) -> None:
    try:
        env = make_member(spec, {**config.env.kwargs, "split": split, "replies": config.replies})
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        checked.errors.append(f"env.kwargs: {_unknown(spec, config.env.kwargs) or error}")
        return
    with closing(env):
        checked.tasks[split] = env.panel
        if len(checked.tasks) > 1:
            return
        checked.max_steps, checked.bounded = env.max_steps or MAX_STEPS, env.max_steps is not None
        checked.stochastic = env.stochastic
        if isinstance(config, TrainConfig):
            checked.dynamics = dynamics_of(env, config.rollout.dynamics)
        window = _window(config, env, checked)
        if window is None:
            return
        try:
            outcome = LocalMembers([env]).reset([0], [0], [0])
        except DataError:
            raise
        except ValueError as error:  # some arguments can only be judged with a task
            checked.errors.append(f"env.kwargs: {error}")
            return
        if checked.dynamics == INDEPENDENT:
            try:
                env.seed_noise(0)
            except TypeError as error:
                checked.errors.append(f"rollout.dynamics: {error}")
                return
        observation = outcome.observations[0]
        checked.prompt = window.ask(observation, member_info(outcome.infos, 0))
        try:
            window.require_frame(checked.prompt, observation)
        except ValueError as error:
            checked.errors.append(f"env.prompt: {config.env.prompt!r}: {error}")


def _window(config: RunConfig, env: Any, checked: EnvCheck) -> PromptWindow | None:
    try:
        return PromptWindow.of(env, **prompt_options(config))
    except ConfigError:
        raise
    except ValueError as error:
        checked.errors.append(f"env.prompt: {error}")
        return None


def _parameters(spec: EnvSpec) -> tuple[dict[str, inspect.Parameter], bool]:
    """The keyword arguments of the environment's constructor, and whether these are all of them.

    A class that passes the rest on has those of its base class too.
    """
    made_by = creator(spec)
    known: dict[str, inspect.Parameter] = {}
    for kind in inspect.getmro(made_by) if inspect.isclass(made_by) else (made_by,):
        parameters = inspect.signature(kind).parameters.values()
        known = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} | known
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return known, True
    return known, False


def _max_steps(spec: EnvSpec, kwargs: dict[str, Any]) -> int:
    """`max_steps` of the config, or its default, for an environment that cannot be made here."""
    parameter = _parameters(spec)[0].get("max_steps")
    default = 1 if parameter is None or not isinstance(parameter.default, int) else parameter.default
    given = kwargs.get("max_steps", default)
    return given if isinstance(given, int) else default


def _unknown(spec: EnvSpec, kwargs: dict[str, Any]) -> str:
    """What is wrong with a keyword argument that no constructor of the environment has; empty if nothing is."""
    known, all_of_them = _parameters(spec)
    if all_of_them and ("split" not in known or "replies" not in known):
        return (
            f"{spec.id} takes no split and replies, which every run passes: derive it from crbc_envs.AnchorEnv, "
            "or register a function that wraps it in crbc_envs.AnchorWrapper"
        )
    for name in kwargs if all_of_them else ():
        if name not in known:
            return f"{spec.id} has no argument {name!r}{nearest(name, known)}"
    return ""


def played_slope(config: TrainConfig) -> str:
    """The calibration slope of two seconds of play on training tasks: whether anchors hide state."""
    with closing(config.member("train")) as env:
        tasks = rng("calibration").integers(len(env.panel), size=48).tolist()
        found = credit.calibration(list(played_groups(env, tasks, seconds=2.0)))
        return f"{env.anchor_name}, {found}{'; they hide state' * found.hidden}"
