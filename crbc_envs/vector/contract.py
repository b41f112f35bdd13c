"""The contract of anchors: what `info` must hold for an environment to play in a group, whatever its class.

An `AnchorEnv` keeps it by construction. Any other environment takes part as a `ForeignEnv`, which shows a group the
attributes of an `AnchorEnv` and checks every info. `check_anchor_env` reads the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import parse_env_id
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from anchors import INVALID
from anchors.key import OWN, anchor_name
from crbc_envs.actions import Replies, admissible_action, normalise, requested_action
from crbc_envs.core import AnchorEnv, Expert, Rows, plain_actions, plain_reward, plain_score, present
from crbc_envs.errors import EnvError
from crbc_envs.noise import seed_noise
from crbc_envs.tasks import Task, TaskPanel

Keys = Mapping[str, type | tuple[type, ...]]

AT_RESET: Keys = {
    "anchor": str,
    "admissible_actions": Sequence,
    "task": str,
    "task_id": str,
    "step": (int, np.integer),
}
FLAG, NUMBER = (bool, np.bool_), (int, float, np.integer, np.floating)
AFTER_STEP: Keys = {**AT_RESET, "action": str, "valid": FLAG, "success": FLAG, "score": NUMBER}
"""The keys of `info` and their types. `label` is optional; without it, the anchor is the label of its situation."""

BOOKKEEPING = (PassiveEnvChecker, OrderEnforcing, TimeLimit)
"""The wrappers of `gymnasium.make` itself. They repeat what an `AnchorEnv` checks and counts."""


def broken_rule(info: Mapping[str, Any], keys: Keys) -> str | None:
    """What is wrong with the keys of an info, in words; None if nothing is."""
    for key, kind in keys.items():
        if key not in info:
            return f"info has no {key!r}"
        if not isinstance(info[key], kind):
            return f"info[{key!r}] is of type {type(info[key]).__name__}"
    return None


def bare(env: gymnasium.Env[Any, Any]) -> AnchorEnv[Any, Any] | None:
    """The `AnchorEnv` below Gymnasium's bookkeeping; None if there is another wrapper, or no `AnchorEnv`."""
    while isinstance(env, gymnasium.Wrapper) and type(env) in BOOKKEEPING:
        env = env.env
    return env if isinstance(env, AnchorEnv) else None


def unwrapped_member(env: gymnasium.Env[Any, Any]) -> AnchorEnv[Any, Any] | None:
    """As `bare`. The `max_steps` of the environment becomes the limit of the wrappers that are left out."""
    member = bare(env)
    if member is not None:
        member.max_steps = min([member.max_steps, *step_limits(env)])
    return member


def step_limits(env: gymnasium.Env[Any, Any]) -> list[int]:
    """The limits of the `TimeLimit` wrappers around an environment, from the outside in."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return limits


def panel_of(env: gymnasium.Env[Any, Any]) -> TaskPanel[Any] | None:
    """The task panel of an environment, also through its wrappers; None if its tasks are seeds."""
    panel = attribute(env, "panel", None)
    return panel if isinstance(panel, TaskPanel) else None


def attribute(env: gymnasium.Env[Any, Any], name: str, default: Any) -> Any:
    """An attribute of an environment or of a wrapper around it; `default` if neither has it."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else default


def replies_of(env: gymnasium.Env[Any, Any]) -> Replies:
    """The grammar by which an environment reads replies."""
    replies: Replies = attribute(env, "replies", "thought")
    return replies


def _nothing(*arguments: Any, **options: Any) -> None:
    """What an environment that lacks a method answers."""


class SeedPanel(TaskPanel[int]):
    """The stand-in panel of an environment without one: task i is the seed i."""

    has_kinds: ClassVar[bool] = False

    def __init__(self, domain: str) -> None:
        super().__init__("train", size=2**31)
        self.domain = domain

    def _task(self, index: int) -> Task[int]:
        return Task(f"{self.domain}/seed/{index}", "", index, f"{index:08x}")


class ForeignEnv(gymnasium.Wrapper[Any, str, Any, str]):
    """An environment that keeps the contract without being a bare `AnchorEnv`, with the attributes of one.

    With a panel, `reset(seed=..., options={"task": index})` is passed on. Without one, a task is a seed: it becomes
    `reset(seed=index)`, and the seed of the dynamics is not used. Attributes that the environment lacks have the
    defaults of `AnchorEnv`; its domain is the name in its id, and its `max_steps` are None where no limit is known.
    One without `replies` reads none: it gets the action that a reply asks for, by the grammar "thought".

    Raises `EnvError`, a `TypeError`, where an info, a reward or an observation breaks the contract.
    """

    def __init__(self, env: gymnasium.Env[Any, str], env_id: str) -> None:
        super().__init__(env)
        panel = panel_of(env)
        self.env_id = env_id
        self.domain: str = attribute(env, "domain", parse_env_id(env_id)[1])
        self.templates = attribute(env, "templates", AnchorEnv.templates)
        self.stochastic: bool = attribute(env, "stochastic", AnchorEnv.stochastic)
        self.placeholder: str = attribute(env, "placeholder", AnchorEnv.placeholder)
        self.legend = attribute(env, "legend", AnchorEnv.legend)
        self.replies: Replies = replies_of(env)
        self.reads = env.has_wrapper_attr("replies")
        """Whether it reads replies by itself."""
        self.anchor_name: str = attribute(env, "anchor_name", anchor_name(OWN, {}))
        own = attribute(env, "max_steps", None)
        self.max_steps: int | None = min([*step_limits(env), *([] if own is None else [own])], default=None)
        self.expert: Callable[..., Expert | None] = attribute(env, "expert", _nothing)
        self.page: Callable[[], Rows | None] = attribute(env, "page", _nothing)
        self.distance: Callable[[], float | None] = attribute(env, "distance", _nothing)
        self.canonical_forms: Callable[[], Mapping[str, str]] = attribute(env, "canonical_forms", dict)
        self.traits: Callable[[], Mapping[str, str]] = attribute(env, "traits", dict)
        self.near_traits: Callable[[], Mapping[str, Collection[str]]] = attribute(env, "near_traits", dict)
        self.has_panel = panel is not None
        self.panel: TaskPanel[Any] = SeedPanel(self.domain) if panel is None else panel
        self._admissible: Sequence[str] = ()

    def check(self) -> None:
        """Play one step of task 0, to find at once what a group would find later."""
        self.reset(seed=0, options={"task": 0})
        if not isinstance(self.action_space.sample(), str):
            raise EnvError(f"{self.env_id}: its actions are not text but {self.action_space}; {_WAY_OUT}")
        self.step(INVALID)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        task = (options or {}).get("task")
        if self.has_panel or task is None:
            observation, info = self.env.reset(seed=seed, options=options)
        else:
            observation, info = self.env.reset(seed=task)
        info = self._kept(info, AT_RESET, "at reset")
        return present(observation, self.observation_space, self.env_id, info["step"]), info

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action if self.reads else self._asked(action))
        info = self._kept(info, AFTER_STEP, "after a step")
        if info["success"] and not terminated:
            raise EnvError(f"{self.env_id}, step {info['step']}: a success does not terminate the episode, as it must")
        truncated = bool(truncated) and not terminated  # a TimeLimit also cuts an episode that has just succeeded
        seen = present(observation, self.observation_space, self.env_id, info["step"])
        place = (self.env_id, info["step"])
        gained, score = plain_reward(reward, *place), plain_score(info["score"], *place)
        # A score may be 0 here and 0.5 there. In a column of infos the first one would make them all integers.
        flags = {"valid": bool(info["valid"]), "success": bool(info["success"])}
        return seen, gained, terminated, truncated, {**info, **flags, "score": score}

    def _kept(self, info: dict[str, Any], keys: Keys, when: str) -> dict[str, Any]:
        """An info that keeps the contract, with a label."""
        fault = broken_rule(info, keys)
        if fault is not None:
            raise EnvError(f"{self.env_id}: {fault} {when}; {_WAY_OUT}")
        self._admissible = plain_actions(info["admissible_actions"], self.env_id, info["step"])
        return {"label": info["anchor"], **info, "step": int(info["step"])}

    def _asked(self, reply: str) -> str:
        """The admissible action that a reply asks for, or else the text that it has as its action."""
        if reply in self._admissible:  # "> go" is an action here, and no line of a transcript
            return reply
        asked = requested_action(reply, self.replies)
        if (found := admissible_action(asked, self._admissible)) != INVALID:
            return found
        return reply if asked in (None, normalise(reply)) else asked

    def accepts(self, reply: str) -> bool:
        """Whether a reply is an action now: as the wrapped environment says, or else as its last info lists them."""
        if self.env.has_wrapper_attr("accepts"):
            return bool(self.env.get_wrapper_attr("accepts")(reply))
        return self._asked(reply) in self._admissible

    def seed_noise(self, seed: int) -> None:
        """As `AnchorEnv.seed_noise`, for the environment below its wrappers: see `crbc_envs.core.seed_noise`."""
        seed_noise(self.env, seed)

    def anchor_as(self, kind: str) -> str:
        """The anchor under another kind, if the wrapped environment has it. Raises `ValueError` if not."""
        if not self.env.has_wrapper_attr("anchor_as"):
            raise ValueError(f"{self.env_id} has anchors of one kind, and not {kind!r}")
        key: str = self.env.get_wrapper_attr("anchor_as")(kind)
        return key

    def batch(self, num_envs: int) -> None:
        """A batch would leave out the wrappers."""
        return


Member = AnchorEnv[Any, Any] | ForeignEnv
"""One member of a group."""

_WAY_OUT = (
    "a group needs text actions and the keys of check_anchor_env. Derive the environment from crbc_envs.AnchorEnv or "
    "wrap it in crbc_envs.AnchorWrapper"
)
