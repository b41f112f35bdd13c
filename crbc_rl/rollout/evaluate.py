"""Evaluation: success on a fixed panel of held-out tasks, with its confidence interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_envs.actions import CAUSES, Replies
from crbc_envs.prompts import PromptWindow, instructed
from crbc_envs.tasks import TaskPanel, stream
from crbc_rl.batches import Floats, Ints, RolloutBatch, Turn
from crbc_rl.config import TrainConfig
from crbc_rl.policies.api import Policy
from crbc_rl.rollout.collect import collect, open_groups
from crbc_rl.rollout.intervals import independent_tasks, wilson
from crbc_rl.rollout.invalid import metric_key
from crbc_rl.rollout.panel import eval_panel
from crbc_rl.rollout.prompts import prompt_options

Columns = dict[str, NDArray[Any]]
"""What was played, by name: a value of each rollout."""
OnBatch = Callable[[Columns, RolloutBatch], None]

OUTCOMES = ("task", "success", "score", "reward", "kind", "content", "cluster")
"""The columns that a run keeps of each evaluation."""

BATCH = 128
"""Tasks played at the same time. It affects speed and memory only, up to the rounding of floats."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How a policy is asked: by which grammar its replies are read, and how many new tokens each may have. With
    `instructed`, a prompt that names no tags is followed by how to reply (`crbc_envs.prompts.instructed`)."""

    replies: Replies
    max_new_tokens: int
    instructed: bool = False

    @classmethod
    def of(cls, config: TrainConfig) -> Asking:
        """As in training."""
        return cls(config.replies, config.rollout.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics over `episodes` held-out tasks of `split`, one rollout each, of which `successes` succeeded.

    `score` is the mean task score, in [0, 1], `reward` the mean return of a rollout, `length` its mean number of steps.
    `invalid_share` is the share of steps with a malformed reply. `reward_by_step` is the mean over all steps of the
    return of the step's rollout, so longer rollouts have more weight. Trainers that keep one row per step report it.
    The paper's Sokoban score is of this kind: at 76.6 % success it is 4.00, where a mean over rollouts is near 7.7.
    """

    split: str
    episodes: int
    successes: int
    score: float
    reward: float
    reward_by_step: float
    length: float
    invalid_share: float
    kinds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(successes, tasks) by kind of task, where the panel has kinds."""
    different: int = 0
    """Number of different tasks by content. A panel may repeat one: the paper's Sokoban boards do."""
    truncated_share: float = 0.0
    """The share of rollouts that ran out of steps."""
    prompt_cut_share: float = 0.0
    """The share of steps whose prompt was too long and was shortened."""
    independent: float = 0.0
    """Number of independent tasks that tell as much as these, for the interval; 0: all of them."""
    causes: dict[str, float] = field(default_factory=dict)
    """The shares of steps by the cause of an invalid reply (`crbc_envs.actions.CAUSES`), for causes that occurred."""
    outcomes: dict[str, list[Any]] = field(default_factory=dict, compare=False, repr=False)
    """What each rollout came to, sorted by task: lists `task`, `success`, `score`, `reward`, `kind`, `content`,
    `cluster`."""

    @property
    def success(self) -> float:
        """The share of tasks that succeeded."""
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % Wilson interval of `success`, for `independent` tasks."""
        n = self.independent or self.episodes
        return wilson(self.success * n, n)

    def __str__(self) -> str:
        low, high = self.interval
        repeated = f", {self.different} different" if 0 < self.different < self.episodes else ""
        return (
            f"{self.success:.1%} (95 % interval {low:.1%} to {high:.1%}, {self.episodes} {self.split} tasks{repeated})"
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures by the names of metrics, the ends of the interval as "low" and "high"; without `outcomes`."""
        low, high = self.interval
        metrics = asdict(replace(self, kinds={}, outcomes={}, causes={}))
        del metrics["kinds"], metrics["outcomes"], metrics["causes"]
        metrics |= {metric_key(cause): share for cause, share in self.causes.items()}
        by_kind = {f"success/{kind}": won / played for kind, (won, played) in self.kinds.items()}
        return {**metrics, "success": self.success, "low": low, "high": high, **by_kind}


def reward_by_step(length: Ints, reward: Floats) -> float:
    """The mean over all steps of the return of the step's rollout. `length` and `reward` (m,) are per rollout."""
    return sum((length * reward).tolist()) / int(length.sum())


def evaluate(
    policy: Policy,
    config: TrainConfig,
    split: str,
    episodes: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Play `episodes` tasks of `split` with `policy`: those of the panel of `config`, at its evaluation temperature.

    The panel is fixed and the sampling follows `seed`, so two policies get the same tasks and the same random numbers.
    `progress` is called with the number of finished tasks, now and then. Raises `ConfigError` where the split has fewer
    tasks.
    """
    panel = eval_panel(config, split, episodes)
    return summarise(split, play_panel(policy, config, split, panel.tasks, seed, progress, panel.repeats))


def play_panel(
    policy: Policy,
    config: TrainConfig,
    split: str,
    tasks: Sequence[int],
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
    repeats: Sequence[int] | None = None,
    on_batch: OnBatch = lambda columns, batch: None,
) -> Columns:
    """Play each of `tasks` once; a rollout is a function of its task, its number in `repeats` and `seed`. `on_batch`
    gets what `play_tasks` yields.

    Returns columns (m,): `task`, `repeat`, `success`, `truncated`, `score`, `reward` (the return), `length`, `invalid`
    and `shortened` (the numbers of malformed replies and of shortened prompts) and, as texts, `kind`, `content` (the
    digest of the task) and `cluster` (`TaskPanel.cluster`).
    """
    options: Any = {"temperature": config.eval.temperature, "progress": progress, "repeats": repeats}
    parts = []
    for columns, batch in play_tasks(policy, config, split, tasks, "evaluation", seed, **options):
        on_batch(columns, batch)
        parts.append(columns)
    return joined(parts)


def play_tasks(
    policy: Policy,
    config: TrainConfig,
    split: str,
    tasks: Sequence[int],
    purpose: str,
    seed: int,
    *,
    temperature: float,
    group_size: int = 1,
    progress: Callable[[int], None] = lambda done: None,
    repeats: Sequence[int] | None = None,
    batch_size: int | None = None,
    asking: Asking | None = None,
    on_turn: Callable[[Turn], None] = lambda turn: None,
) -> Iterator[tuple[Columns, RolloutBatch]]:
    """Play each of `tasks` `group_size` times; a group is a function of its task, its number in `repeats` (by default
    0), `purpose` and `seed`.

    Yields about `batch_size` rollouts at a time (by default `BATCH`), with all turns, and their columns as `play_panel`
    has them; the rollouts of a task follow one another. `progress` is called with the number of rollouts that have
    ended, `on_turn` with each turn that was executed. `asking` is as in training by default.
    """
    asking = asking or Asking.of(config)
    size = max(1, (batch_size or BATCH) // group_size)
    repeats = [0] * len(tasks) if repeats is None else repeats
    prompts = prompt_options(config)
    for start in range(0, len(tasks), size):
        some, again = tasks[start : start + size], repeats[start : start + size]
        with closing(open_groups(config, split, len(some), group_size, asking.replies)) as envs:
            asked = prompts.copy()
            if asking.instructed:
                asked["prompt"] = instructed(PromptWindow.of(envs, **prompts).template, asking.replies)
            batch = collect(
                envs,
                policy,
                some,
                [rollout_seed(purpose, seed, *place) for place in zip(some, again, strict=True)],
                **asked,
                temperature=temperature,
                max_new_tokens=asking.max_new_tokens,
                waves=config.rollout.waves,
                progress=partial(_ended, progress, start * group_size),
                on_turn=on_turn,
            )
            described = describe(envs.panel, some, again, group_size)
        yield {**_columns(batch), **described}, batch


def rollout_seed(purpose: str, seed: int, task: int, repeat: int) -> int:
    """The seed of a task's rollouts. A task that comes again is played with other random numbers."""
    return stream(purpose, seed, task, repeat) if repeat else stream(purpose, seed, task)


def describe(source: TaskPanel[Any], tasks: Sequence[int], repeats: Sequence[int], times: int = 1) -> Columns:
    """The columns that tell what was played, `times` times each."""
    contents = [task for task in (source[index] for index in tasks) for _ in range(times)]
    return {
        "task": np.repeat(np.array(tasks, dtype=np.int64), times),
        "repeat": np.repeat(np.array(repeats, dtype=np.int64), times),
        "kind": np.array([task.kind for task in contents], dtype=object),
        "content": np.array([task.digest for task in contents], dtype=object),
        "cluster": np.array([source.cluster(task) for task in contents], dtype=object),
    }


def _columns(batch: RolloutBatch) -> Columns:
    rollouts, shortened = batch.rollouts, [turn.shortened for turn in batch.turns]
    members, causes = len(rollouts.length), np.array([turn.cause for turn in batch.turns])

    def counted(steps: Any) -> Ints:
        return np.bincount(rollouts.rollout, steps, members).astype(np.int64)

    return {
        "success": rollouts.success,
        "truncated": rollouts.truncated,
        "score": rollouts.score,
        "reward": rollouts.returns,
        "length": rollouts.length,
        "invalid": counted(~rollouts.valid),
        "shortened": counted(shortened),
        **{metric_key(cause): counted(causes == cause) for cause in CAUSES},
    }


def _ended(progress: Callable[[int], None], before: int, ended: int) -> None:
    progress(before + ended)


def joined(parts: Sequence[Columns]) -> Columns:
    """The columns of all parts, one part after the other. A rank without a task has none."""
    full = [part for part in parts if part]
    return {name: np.concatenate([part[name] for part in full]) for part in full[:1] for name in part}


def summarise(split: str, played: Columns) -> Evaluation:
    """The metrics of rollouts of `split`. They do not depend on the order of the rollouts."""
    order = np.lexsort((played["repeat"], played["task"]))
    success, score, reward, length = (played[name][order] for name in ("success", "score", "reward", "length"))
    of_task, content = played["kind"].tolist(), played["content"].tolist()
    kinds = Counter(of_task)
    won = Counter(kind for kind, succeeded in zip(of_task, played["success"], strict=True) if succeeded)
    episodes, steps = len(order), int(length.sum())
    return Evaluation(
        split=split,
        episodes=episodes,
        successes=int(success.sum()),
        score=sum(score.tolist()) / episodes,
        reward=sum(reward.tolist()) / episodes,
        reward_by_step=reward_by_step(length, reward),
        length=steps / episodes,
        invalid_share=int(played["invalid"].sum()) / steps,
        kinds={kind: (won[kind], kinds[kind]) for kind in sorted(kinds) if kind},
        different=len(set(content)),
        truncated_share=int(played["truncated"].sum()) / episodes,
        prompt_cut_share=int(played["shortened"].sum()) / steps,
        independent=independent_tasks(played["success"], content),
        causes={
            cause: int(played[metric_key(cause)].sum()) / steps
            for cause in CAUSES
            if np.any(played.get(metric_key(cause), False))
        },
        outcomes={name: played[name][order].tolist() for name in OUTCOMES},
    )
