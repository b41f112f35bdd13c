"""Demonstrations for imitation: an expert's episodes, or the successful ones of random play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from crbc_envs.actions import tagged
from crbc_envs.core import AnchorEnv, Expert, Infos
from crbc_envs.vector.contract import ForeignEnv

Env = AnchorEnv[Any, Any] | ForeignEnv

Demonstration = tuple[Any, Infos, str]
"""One step: the observation, its info and the reply to it."""


def expert_steps(env: Env, rng: np.random.Generator, slips: float = 0.0, **options: Any) -> Iterator[Demonstration]:
    """The expert's steps, episode after episode on drawn tasks; endless, and empty without an expert.

    A share `slips` of its replies reaches the environment malformed. So the expert shows what to do after a reply that
    was refused, where it would never come by itself. All draws are `rng`'s. `options` go to `env.expert`.
    """
    while True:
        first = _begin(env, rng)
        expert = env.expert(rng, **options)
        if expert is None:
            return
        yield from _episode(env, first, expert, slips=lambda: slips > 0 and rng.random() < slips)


def random_successes(
    env: Env,
    rng: np.random.Generator,
    episodes: int,
    on_episode: Callable[[bool], None] = lambda success: None,
) -> list[list[Demonstration]]:
    """The successful ones of `episodes` episodes of random admissible actions, on drawn tasks.

    An action with the environment's placeholder is drawn only where there is no other. `on_episode` is called after
    each episode with its success.
    """

    def draw(observation: Any, info: Infos) -> str:
        actions = [a for a in info["admissible_actions"] if not env.placeholder or env.placeholder not in a]
        actions = actions or list(info["admissible_actions"])
        return tagged(actions[int(rng.integers(len(actions)))])

    won: list[list[Demonstration]] = []
    for _ in range(episodes):
        ended: list[bool] = []
        steps = list(_episode(env, _begin(env, rng), draw, ended.append))
        if ended[0]:
            won.append(steps)
        on_episode(ended[0])
    return won


def _begin(env: Env, rng: np.random.Generator) -> tuple[Any, Infos]:
    # A stochastic environment draws from its own generator, so every episode seeds it.
    seed = int(rng.integers(2**31)) if env.stochastic else None
    return env.reset(seed=seed, options={"task": int(rng.integers(len(env.panel)))})


def _episode(
    env: Env,
    first: tuple[Any, Infos],
    reply_to: Expert,
    on_end: Callable[[bool], None] = lambda success: None,
    slips: Callable[[], bool] = lambda: False,
) -> Iterator[Demonstration]:
    (observation, info), over = first, False
    while not over:
        reply = reply_to(observation, info)
        yield observation, info, reply
        observation, _, terminated, truncated, info = env.step(tagged("") if slips() else reply)
        over = terminated or truncated
    on_end(bool(info["success"]))
