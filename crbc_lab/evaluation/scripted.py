"""Reference points of an evaluation that need no model: the environment's expert, and random admissible actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np

from anchors import INVALID
from crbc_envs.core import Expert
from crbc_envs.demonstrations import advice, random_reply
from crbc_envs.tasks import rng
from crbc_envs.vector.contract import Member
from crbc_envs.vector.members import INDEPENDENT, begin, dynamics_of, noise_seed
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.evaluate import BATCH, Columns, describe, rollout_seed

Script = Literal["expert", "random"]


def play_scripted(
    script: Script,
    config: TrainConfig,
    split: str,
    tasks: Sequence[int],
    repeats: Sequence[int],
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
    batch_size: int = BATCH,
) -> Iterator[Columns]:
    """Play each of `tasks` once, one after another in this process.

    Yields the columns of `play_panel`, `batch_size` rollouts at a time. A task begins as it begins for a policy, and
    has the same noise. All other draws are those of `rng(script, its seed)`. Where the expert has no advice, its reply
    counts as malformed. Raises `ConfigError` where the environment has no expert.
    """
    with closing(config.member(split, replies="thought")) as env:  # it reads bare actions, too
        own = dynamics_of(env, config.rollout.dynamics) == INDEPENDENT
        for start in range(0, len(tasks), batch_size):
            some, again = tasks[start : start + batch_size], repeats[start : start + batch_size]
            rollouts = []
            for place, (task, repeat) in enumerate(zip(some, again, strict=True)):
                drawn = rollout_seed("evaluation", seed, task, repeat)
                rollouts.append(_play(script, env, task, drawn, noise_seed(drawn, 0) if own else None))
                progress(start + place + 1)
            columns = {name: np.array([rollout[name] for rollout in rollouts]) for name in rollouts[0]}
            yield {**columns, **describe(env.panel, some, again)}


def _play(script: Script, env: Member, task: int, seed: int, noise: int | None) -> dict[str, Any]:
    draws = rng(script, seed)
    observation, info = begin(env, seed, {"task": task}, noise)
    expert: Expert | None = env.expert(draws) if script == "expert" else lambda _, now: random_reply(env, now, draws)
    if expert is None:
        raise ConfigError(f"{env.domain} has no expert: use --policy random, or a policy of a run")
    reward, invalid, terminated, truncated = 0.0, 0, False, False
    while not (terminated or truncated):
        reply = advice(expert, observation, info)
        observation, earned, terminated, truncated, info = env.step(INVALID if reply is None else reply)
        reward, invalid = reward + float(earned), invalid + (not info["valid"])
    return {
        "success": bool(info["success"]),
        "truncated": bool(truncated),
        "score": float(info["score"]),
        "reward": reward,
        "length": int(info["step"]),
        "invalid": invalid,
        "shortened": 0,
    }
