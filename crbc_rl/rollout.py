"""Group rollouts: play every group to its end with a policy, and keep what was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from anchors import InternedRollouts, RolloutGroup
from crbc_envs import GroupVectorEnv
from crbc_envs.prompts import PromptWindow
from crbc_rl.config import TrainConfig
from crbc_rl.tokens import Turn


class Policy(Protocol):
    """What a rollout needs of a policy: prompts in; token ids, log-probabilities and text out."""

    def encode(self, prompt: str) -> list[int]: ...

    def decode(self, turn: Turn) -> str: ...

    def generate(
        self, prompts: Sequence[list[int]], temperature: float, max_new_tokens: int, generator: torch.Generator
    ) -> list[Turn]: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """Complete groups and, for each, each rollout's turns: `turns[g][i][t]` is step t of
    `groups[g].rollouts[i]`. `interned` are the same rollouts as credit reads them."""

    groups: list[RolloutGroup]
    interned: InternedRollouts
    turns: list[list[list[Turn]]]


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
    *,
    seed: int,
    prompt: str,
    temperature: float,
    max_new_tokens: int,
    generator: torch.Generator,
) -> Sample:
    """Play one group per task to the end. Only live members are shown to the policy, so a finished
    one costs no token. `seed` is of the environments' own draws, `generator` of the policy's."""
    observations, infos = envs.reset(seed=seed, options={"task": tasks})
    windows = [PromptWindow.of(envs.domain, prompt) for _ in range(envs.num_envs)]
    turns: list[list[Turn]] = [[] for _ in range(envs.num_envs)]
    while (live := np.flatnonzero(envs.active)).size:
        prompts = [policy.encode(windows[m].prompt(observations[m], _info(infos, m))) for m in live]
        actions: list[str | None] = [None] * envs.num_envs
        for m, turn in zip(live, policy.generate(prompts, temperature, max_new_tokens, generator), strict=True):
            turns[m].append(turn)
            actions[m] = policy.decode(turn)
        before = observations
        observations, _, _, _, infos = envs.step(actions)
        for m in live:
            windows[m].record(before[m], infos["action"][m])
    groups = envs.groups()
    size = envs.group_size
    return Sample(groups, envs.interned(), [turns[g * size : (g + 1) * size] for g in range(len(groups))])


def _info(infos: dict[str, Any], member: int) -> dict[str, Any]:
    """One member's info out of Gymnasium's packed form, in which an info inside an info is packed too."""
    return {
        name: _info(values, member) if isinstance(values, dict) else values[member]
        for name, values in infos.items()
        if not name.startswith("_")
    }
