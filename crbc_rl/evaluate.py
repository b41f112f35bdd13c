"""Success on a fixed panel of held-out tasks, with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from anchors import Rollout
from crbc_rl.config import TrainConfig
from crbc_rl.rollout import Policy, collect, open_groups

BATCH = 128
"""Tasks played side by side; the figures do not depend on it, the sampled tokens do."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over `episodes` held-out tasks, one rollout each.

    `reward` is the mean return of a rollout. `reward_by_step` is the mean over all steps of the return
    of the rollout a step is in, so that long rollouts weigh more: trainers that keep one row per step
    report it, and the paper's Sokoban score is of this kind (it gives 76.6 % success a score of 4.00, where a
    mean over rollouts is near 7.7).
    """

    split: str
    episodes: int
    successes: int
    reward: float
    reward_by_step: float
    length: float
    invalid_share: float
    kinds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(successes, tasks) by kind of task, where the panel has kinds."""

    @property
    def success(self) -> float:
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.successes, self.episodes)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.success:.1%} (95 % interval {low:.1%} to {high:.1%}, {self.episodes} {self.split} tasks)"

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        figures = {name: value for name, value in asdict(self).items() if name != "kinds"}
        by_kind = {f"success/{kind}": won / played for kind, (won, played) in self.kinds.items()}
        return {**figures, "success": self.success, "low": low, "high": high, **by_kind}


def reward_by_step(rollouts: Sequence[Rollout]) -> float:
    """The mean over steps of the return of the rollout a step is in."""
    return sum(len(rollout) * rollout.reward for rollout in rollouts) / sum(map(len, rollouts))


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a proportion, 95 % for z = 1.96 (Wilson 1927)."""
    p, zz = successes / n, z * z / n
    centre, half = p + zz / 2, z * math.sqrt(p * (1 - p) / n + zz / (4 * n))
    return max(0.0, (centre - half) / (1 + zz)), min(1.0, (centre + half) / (1 + zz))


def evaluate(
    policy: Policy,
    config: TrainConfig,
    split: str,
    episodes: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Play the first `episodes` tasks of `split` once each at the evaluation temperature.

    The panel is fixed and the sampling seeded, so two policies meet the same tasks and the same
    dice. Raises `ValueError` where the panel is shorter.
    """
    generator = torch.Generator().manual_seed(seed)
    rollouts: list[Rollout] = []
    kinds: list[str] = []
    for start in range(0, episodes, BATCH):
        tasks = range(start, min(start + BATCH, episodes))
        with closing(open_groups(config, split, len(tasks), 1)) as envs:
            sample = collect(
                envs,
                policy,
                tasks,
                seed=seed + start,
                prompt=config.env.prompt,
                temperature=config.eval.temperature,
                max_new_tokens=config.rollout.max_new_tokens,
                generator=generator,
            )
            kinds += [envs.panel[task].kind for task in tasks]
        rollouts += [rollout for group in sample.groups for rollout in group.rollouts]
        progress(len(rollouts))
    steps = sum(len(rollout) for rollout in rollouts)
    return Evaluation(
        split=split,
        episodes=episodes,
        successes=sum(rollout.success for rollout in rollouts),
        reward=sum(rollout.reward for rollout in rollouts) / episodes,
        reward_by_step=reward_by_step(rollouts),
        length=steps / episodes,
        invalid_share=sum(rollout.invalid for rollout in rollouts) / steps,
        kinds={
            kind: (sum(r.success for r, k in zip(rollouts, kinds, strict=True) if k == kind), kinds.count(kind))
            for kind in sorted(set(kinds) - {""})
        },
    )
