"""Group rollouts: play every group to its end with a policy, and keep what was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchors import InternedRollouts, RolloutGroup
from crbc_envs import GroupVectorEnv
from crbc_envs.prompts import PromptWindow
from crbc_rl.config import TrainConfig
from crbc_rl.policies.api import Policy
from crbc_rl.tokens import Turn


@dataclass(frozen=True, slots=True)
class Sample:
    """Complete groups and, for each, each rollout's turns: `turns[g][i][t]` is step t of
    `groups[g].rollouts[i]`."""

    groups: list[RolloutGroup]
    turns: list[list[list[Turn]]]
    counted: InternedRollouts | None = None
    """The same rollouts as the environments numbered them, where they did."""

    @property
    def interned(self) -> InternedRollouts:
        """The same rollouts as credit reads them."""
        return self.counted or InternedRollouts.from_groups(self.groups)

    def joined(self, other: Sample) -> Sample:
        """The groups of both."""
        return other if not self.groups else Sample(self.groups + other.groups, self.turns + other.turns)

    def chosen(self, numbers: Sequence[int]) -> Sample:
        """Some of the groups."""
        return Sample([self.groups[g] for g in numbers], [self.turns[g] for g in numbers])


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
) -> Sample:
    """Play one group per task to the end. Only live members are shown to the policy, so a finished
    one costs no token.

    `seeds` has one per group: every draw in a group is a function of its seed, the member and the step, so
    a group is played alike whichever groups are played beside it.
    """
    observations, infos = envs.reset(options={"task": tasks, "group_seed": seeds})
    windows = [PromptWindow.of(envs.domain, prompt) for _ in range(envs.num_envs)]
    turns: list[list[Turn]] = [[] for _ in range(envs.num_envs)]
    while live := np.flatnonzero(envs.active).tolist():
        prompts = [windows[m].ask(observations[m], _info(infos, m)) for m in live]
        dice = [stream("reply", seeds[m // envs.group_size], m % envs.group_size, len(turns[m])) for m in live]
        actions: list[str | None] = [None] * envs.num_envs
        for m, turn in zip(live, policy.generate(prompts, dice, temperature, max_new_tokens), strict=True):
            turns[m].append(turn)
            actions[m] = turn.text
        before = observations
        observations, _, _, _, infos = envs.step(actions)
        for m in live:
            windows[m].record(before[m], infos["action"][m])
    size = envs.group_size
    return Sample(envs.groups(), [turns[m : m + size] for m in range(0, envs.num_envs, size)], envs.interned())


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
