"""Demonstrations for imitation: an expert's episodes, or the successful ones of random play. And groups of play."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from time import monotonic
from typing import Any

import numpy as np

from anchors import Rollout, RolloutGroup, Step
from crbc_envs.actions import tagged
from crbc_envs.core import Expert, Infos
from crbc_envs.prompts import Prompt, PromptWindow
from crbc_envs.tasks import rng as seeded
from crbc_envs.vector.contract import Member
from crbc_envs.vector.members import begin, noise_seed

Demonstration = tuple[Any, Infos, str]
"""One step: the observation, its info and the reply to it."""


def advice(expert: Expert, observation: Any, info: Infos) -> str | None:
    """The expert's reply. None where it has no advice, since it would not have come here itself."""
    try:
        return expert(observation, info)
    except ValueError:
        return None


def expert_steps(
    env: Member, rng: np.random.Generator, slips: float = 0.0, strays: float = 0.0, **options: Any
) -> Iterator[Demonstration]:
    """The expert's steps, episode after episode on drawn tasks; endless, and empty without an expert.

    A share `slips` of its replies reaches the environment malformed, and in place of a share `strays` comes a random
    admissible action. So the expert shows what to do after a reply that was refused and where it would never come by
    itself, and what it says is always its own (Laskey et al. 2017, "DART"). An episode ends where it knows no way,
    which is a `ValueError` of the expert. All draws are `rng`'s. `options` go to `env.expert`.
    """

    def executed(reply: str, info: Infos) -> str:
        if slips and rng.random() < slips:
            return tagged("")
        return random_reply(env, info, rng) if strays and rng.random() < strays else reply

    while True:
        first = _begin(env, rng)
        expert = env.expert(rng, **options)
        if expert is None:
            return
        yield from _episode(env, first, expert, executed=executed)


def prompted(window: PromptWindow, steps: Iterable[Demonstration]) -> Iterator[tuple[Prompt, Infos, str]]:
    """Each step as an agent would see it: the prompt that `window` makes, the info, and the reply."""
    seen: Any = None
    for observation, info, reply in steps:
        if info["step"]:
            window.record(seen, info["action"])
        else:
            window.history.clear()
        yield window.ask(observation, info), info, reply
        seen = observation


def corrected_steps(
    env: Member, rng: np.random.Generator, task: int, replies: Sequence[str], **options: Any
) -> Iterator[Demonstration]:
    """The expert's steps at the states of one episode that somebody else played on `task` with `replies`.

    Each step has the expert's reply, and the other's reply is executed (Ross et al. 2011, "DAgger"). It ends with the
    replies, where the expert knows no way, or where the episode ends. `options` go to `env.expert`. In a stochastic
    environment the states are those of another episode with the same replies.

    Raises `ValueError` where the environment has no expert.
    """
    seed = int(rng.integers(2**31)) if env.stochastic else None
    first = env.reset(seed=seed, options={"task": task})
    expert = env.expert(rng, **options)
    if expert is None:
        raise ValueError(f"{env.domain} has no expert to correct the replies")
    yield from islice(_episode(env, first, expert, executed=lambda _, info: replies[info["step"]]), len(replies))


def random_successes(
    env: Member,
    rng: np.random.Generator,
    episodes: int,
    on_episode: Callable[[bool], None] = lambda success: None,
) -> list[list[Demonstration]]:
    """The successful ones of `episodes` episodes of random admissible actions, on drawn tasks.

    An action with the environment's placeholder is drawn only where there is no other. `on_episode` is called after
    each episode with its success.
    """

    won: list[list[Demonstration]] = []
    for _ in range(episodes):
        ended: list[bool] = []
        steps = list(_episode(env, _begin(env, rng), lambda _, info: random_reply(env, info, rng), ended.append))
        if ended[0]:
            won.append(steps)
        on_episode(ended[0])
    return won


def played_groups(
    env: Member, tasks: Iterable[int], size: int = 8, skill: float = 0.3, seconds: float = inf
) -> Iterator[RolloutGroup]:
    """A group of `size` for each task: random play in which an expert, if there is one, takes a share `skill` of the
    steps, with noise of each rollout's own. No group begins after so many `seconds`."""
    until = monotonic() + seconds
    for number, task in enumerate(tasks):
        if monotonic() < until:
            yield RolloutGroup([_rollout(env, task, number, member, skill) for member in range(size)], str(task))


def _rollout(env: Member, task: int, seed: int, member: int, skill: float) -> Rollout:
    rng, noise = seeded("played", seed, member), noise_seed(seed, member) if env.stochastic else None
    observation, info = begin(env, seed, {"task": task}, noise)
    expert, steps, over = env.expert(rng), list[Step](), False
    while not over:
        advised = None if expert is None else advice(expert, observation, info)  # asked always: it learns from seeing
        reply = random_reply(env, info, rng) if advised is None or rng.random() >= skill else advised
        anchor, label = info["anchor"], info.get("label", "")
        observation, reward, terminated, truncated, info = env.step(reply)
        steps.append(Step(anchor, info["action"], float(reward), label))
        over = bool(terminated or truncated)
    return Rollout(steps, info["success"], truncated and not info["success"], info["anchor"])


def _begin(env: Member, rng: np.random.Generator) -> tuple[Any, Infos]:
    # A stochastic environment draws from its own generator, so every episode seeds it.
    seed = int(rng.integers(2**31)) if env.stochastic else None
    return env.reset(seed=seed, options={"task": int(rng.integers(len(env.panel)))})


def random_reply(env: Member, info: Infos, rng: np.random.Generator) -> str:
    """A reply with a random admissible action, one with the placeholder only where there is no other."""
    actions = [a for a in info["admissible_actions"] if not env.placeholder or env.placeholder not in a]
    actions = actions or list(info["admissible_actions"])
    return tagged(actions[int(rng.integers(len(actions)))])


def _episode(
    env: Member,
    first: tuple[Any, Infos],
    reply_to: Expert,
    on_end: Callable[[bool], None] = lambda success: None,
    executed: Callable[[str, Infos], str] = lambda reply, info: reply,
) -> Iterator[Demonstration]:
    (observation, info), over = first, False
    while not over:
        try:
            reply = reply_to(observation, info)
        except ValueError:  # it knows no way from here
            if info["step"] == 0:
                raise
            break
        yield observation, info, reply
        observation, _, terminated, truncated, info = env.step(executed(reply, info))
        over = terminated or truncated
    on_end(bool(info["success"]))
