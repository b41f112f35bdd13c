"""Group rollouts: play every group to its end with a policy, and keep what was sampled."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchors import InternedRollouts, RolloutGroup
from crbc_envs import GroupVectorEnv
from crbc_envs.core import Outcome
from crbc_envs.prompts import PromptWindow
from crbc_rl.batches import Turn
from crbc_rl.config import TrainConfig
from crbc_rl.policies.api import Policy, Queue, queue_of


@dataclass(frozen=True, slots=True)
class Sample:
    """Complete groups and, for each, each rollout's turns: `turns[g][i][t]` is step t of
    `groups[g].rollouts[i]`."""

    groups: list[RolloutGroup]
    turns: list[list[list[Turn]]]
    counted: InternedRollouts | None = None
    """The same rollouts as the environments numbered them, where they did."""
    waited: float = 0.0
    """Seconds in which nothing but environments ran."""

    @property
    def interned(self) -> InternedRollouts:
        """The same rollouts as credit reads them."""
        return self.counted or InternedRollouts.from_groups(self.groups)

    def joined(self, other: Sample) -> Sample:
        """The groups of both."""
        if not self.groups:
            return other
        return Sample(self.groups + other.groups, self.turns + other.turns, waited=self.waited + other.waited)

    def chosen(self, numbers: Sequence[int]) -> Sample:
        """Some of the groups."""
        return Sample([self.groups[g] for g in numbers], [self.turns[g] for g in numbers], waited=self.waited)


def open_groups(config: TrainConfig, split: str, num_groups: int, group_size: int) -> GroupVectorEnv:
    """The config's environments on one split, as training and evaluation play them: replies need their tags."""
    return GroupVectorEnv(
        config.env.id,
        num_groups,
        group_size,
        config.rollout.backend,
        config.rollout.num_workers,
        **config.env.kwargs,
        split=split,
        require_tags=True,
    )


def collect(
    envs: GroupVectorEnv,
    policy: Policy,
    tasks: Sequence[int],
    seeds: Sequence[int],
    *,
    prompt: str,
    temperature: float,
    max_new_tokens: int,
    waves: int = 1,
) -> Sample:
    """Play one group per task to the end. Only live members are shown to the policy, so a finished
    one costs no token.

    `seeds` has one per group: every draw in a group is a function of its seed, the member and the step, so
    a group is played alike whichever groups are played beside it.

    Environments step in a thread of their own, while the policy goes on with what else it was asked. A
    `Continuous` one is asked by each member when it is ready; to any other the members are shown together, in
    `waves` of whole groups by turns: with two, one's environments step while the other's replies are sampled.
    """
    table = _Table(envs, prompt, tasks, seeds)
    numbers = np.arange(envs.num_envs).reshape(envs.num_groups, -1)
    upcoming = deque(wave.ravel().tolist() for wave in np.array_split(numbers, min(waves, envs.num_groups)))
    moving: Future[Outcome] | None = None
    movers: list[int] = []
    waited = 0.0
    with ThreadPoolExecutor(1, "environments") as thread, queue_of(policy, temperature, max_new_tokens) as queue:
        while upcoming or moving or queue.waiting:
            if upcoming:
                table.ask(upcoming.popleft(), queue)
            replies = queue.ready()
            if moving:
                begun = time.perf_counter()
                outcome = moving.result()
                waited += time.perf_counter() - begun
                table.ask(table.hear(movers, outcome), queue)
                moving = None
            if replies:
                movers = [m for m, _ in replies]
                moving = thread.submit(envs.step_members, movers, table.say(replies))
    return Sample(envs.groups(), table.turns_by_group(), envs.interned(), waited)


class _Table:
    """What every member saw, was asked and said."""

    def __init__(self, envs: GroupVectorEnv, prompt: str, tasks: Sequence[int], seeds: Sequence[int]) -> None:
        observations, infos = envs.reset(options={"task": tasks, "group_seed": seeds})
        members = range(envs.num_envs)
        self.size, self.seeds = envs.group_size, seeds
        self.windows = [PromptWindow.of(envs, prompt) for _ in members]
        self.seen: list[Any] = list(observations)
        self.told = [_info(infos, m) for m in members]
        self.turns: list[list[Turn]] = [[] for _ in members]

    def ask(self, members: Iterable[int], queue: Queue) -> None:
        for m in members:
            die = stream("reply", self.seeds[m // self.size], m % self.size, len(self.turns[m]))
            queue.ask(m, self.windows[m].ask(self.seen[m], self.told[m]), die)

    def say(self, replies: Sequence[tuple[int, Turn]]) -> list[str]:
        """The replies' texts."""
        for m, turn in replies:
            self.turns[m].append(turn)
        return [turn.text for _, turn in replies]

    def hear(self, members: Sequence[int], outcome: Outcome) -> list[int]:
        """What came of it; those that play on."""
        for place, m in enumerate(members):
            self.windows[m].record(self.seen[m], outcome.infos["action"][place])
            self.seen[m], self.told[m] = outcome.observations[place], _info(outcome.infos, place)
        over = (outcome.terminated | outcome.truncated).tolist()
        return [m for m, ended in zip(members, over, strict=True) if not ended]

    def turns_by_group(self) -> list[list[list[Turn]]]:
        return [self.turns[first : first + self.size] for first in range(0, len(self.turns), self.size)]


def stream(name: str, *path: int) -> int:
    """The seed of one stream of draws, below 2**31, from what names it."""
    return int(np.random.SeedSequence([*name.encode(), *path]).generate_state(1)[0] >> 1)


def rng(name: str, *path: int) -> np.random.Generator:
    """One stream of draws, from what names it."""
    return np.random.default_rng(stream(name, *path))


def _info(infos: dict[str, Any], member: int) -> dict[str, Any]:
    """One member's info out of Gymnasium's packed form, in which an info inside an info is packed too."""
    return {
        name: _info(values, member) if isinstance(values, dict) else values[member]
        for name, values in infos.items()
        if not name.startswith("_")
    }
