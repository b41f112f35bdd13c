"""Asks the environment's expert for a hint, in a copy of the game that a person plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anchors import INVALID
from crbc_envs.core import AnchorEnv, Expert, Infos
from crbc_envs.demonstrations import advice
from crbc_envs.vector.contract import ForeignEnv

Env = AnchorEnv[Any, Any] | ForeignEnv

LONGEST = 1_000
"""Steps after which an expert is taken to get nowhere, for an environment without a limit."""


@dataclass(frozen=True)
class Episode:
    """What determines an episode: an environment is a function of its task, its seed and the replies so far."""

    task: int
    seed: int
    replies: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Hint:
    """The expert's next action, and how the episode ends after so many `steps` if it goes on playing."""

    action: str
    steps: int
    success: bool
    score: float


class NoHint(Exception):
    """There is no hint; the message says why."""


class Hints:
    """Asks the expert in a copy of the environment, which is brought to where the player is. `make` makes the copy."""

    def __init__(self, make: Callable[[], Env]) -> None:
        self._make = make
        self._env: Env | None = None

    def close(self) -> None:
        if self._env is not None:
            self._env.close()

    def __call__(self, episode: Episode, anchor: str) -> Hint:
        """The hint at the end of `episode`, where the player sees `anchor`. Raises `NoHint`.

        The expert watches the episode from its start, and then plays on to the end.
        """
        if self._env is None:
            self._env = self._make()
        env = self._env
        observation, info = env.reset(seed=episode.seed, options={"task": episode.task})
        expert = env.expert(np.random.default_rng(0))
        if expert is None:
            raise NoHint(f"{env.domain} has no expert")
        for reply in episode.replies:
            advice(expert, observation, info)
            observation, _, _, _, info = env.step(reply)
        if info["anchor"] != anchor:
            raise NoHint("the same replies lead elsewhere when they are repeated")
        return _outcome(env, expert, observation, info)


def _outcome(env: Env, expert: Expert, observation: Any, info: Infos) -> Hint:
    """What the expert does first, and what it comes to. Raises `NoHint` if its first reply is no action."""
    done: list[str] = []
    over = False
    while not over and len(done) < LONGEST:
        reply = advice(expert, observation, info)
        if reply is None:
            break
        observation, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
        done.append(str(info["action"]))
    if not done or done[0] == INVALID:
        raise NoHint("the expert has no advice here")
    return Hint(done[0], len(done), bool(info["success"]), float(info["score"]))
