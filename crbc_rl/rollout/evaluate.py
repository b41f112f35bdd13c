"""Success on a fixed panel of held-out tasks, with its confidence interval."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from anchors import Rollout
from crbc_rl.config import TrainConfig
from crbc_rl.policies.api import Policy
from crbc_rl.rollout.collect import collect, open_groups, stream

BATCH = 128
"""Tasks played side by side; nothing depends on it but speed and memory."""


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


Played = dict[int, tuple[Rollout, str]]
"""A rollout and the kind of its task ("" where a panel has none), by task."""


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
    return summarise(split, play_panel(policy, config, split, range(episodes), seed, progress))


def play_panel(
    policy: Policy,
    config: TrainConfig,
    split: str,
    tasks: Sequence[int],
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Played:
    """One rollout of each of `tasks`; each is a function of its task and `seed`."""
    played: Played = {}
    for start in range(0, len(tasks), BATCH):
        some = tasks[start : start + BATCH]
        with closing(open_groups(config, split, len(some), 1)) as envs:
            sample = collect(
                envs,
                policy,
                some,
                [stream("evaluation", seed, task) for task in some],
                prompt=config.env.prompt,
                temperature=config.eval.temperature,
                max_new_tokens=config.rollout.max_new_tokens,
                waves=config.rollout.waves,
            )
            played |= {
                task: (group.rollouts[0], envs.panel[task].kind)
                for task, group in zip(some, sample.groups, strict=True)
            }
        progress(len(played))
    return played


def summarise(split: str, played: Played) -> Evaluation:
    """The figures of rollouts of `split`."""
    rollouts = [rollout for rollout, _ in played.values()]
    kinds = Counter(kind for _, kind in played.values())
    won = Counter(kind for rollout, kind in played.values() if rollout.success)
    steps = sum(len(rollout) for rollout in rollouts)
    return Evaluation(
        split=split,
        episodes=len(rollouts),
        successes=sum(rollout.success for rollout in rollouts),
        reward=sum(rollout.reward for rollout in rollouts) / len(rollouts),
        reward_by_step=reward_by_step(rollouts),
        length=steps / len(rollouts),
        invalid_share=sum(rollout.invalid for rollout in rollouts) / steps,
        kinds={kind: (won[kind], kinds[kind]) for kind in sorted(kinds) if kind},
    )
