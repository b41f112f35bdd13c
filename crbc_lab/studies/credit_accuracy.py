"""How close each estimator's advantages are to the exact truth, in worlds that are small enough to solve.

A world is a family of finite decision processes (`crbc_lab.studies.worlds`). The true credit of an action under a known
behaviour, Q_t - V_t with the remaining steps taken into account, and the true policy gradient are short recursions.
The study samples rollout groups, computes what each estimator gives every step, and measures it: who is credited
(rank, sign), where the policy is moved (cosine to the gradient, bias and noise apart, the success gained), and what
single steps get (steps that do not matter, repaired errors). Final advantages are judged, which are trained on, and
step terms beside them.

`crbc study credit-accuracy` runs it. `judge` takes estimators of one's own. docs/credit/accuracy.md has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from anchors import EmpiricalProcess
from anchors.columns import Floats
from crbc_lab.interrupts import worker_pool
from crbc_lab.studies import credit_metrics as metrics
from crbc_lab.studies.credit_metrics import BY_GROUP, PARTS, Group
from crbc_lab.studies.estimators import ORACLE, Estimator
from crbc_lab.studies.mdp import TINY, TabularMDP, Truth, evaluate, sample
from crbc_lab.studies.worlds import World, behaviour

Progress = Callable[[int, int], None]
Play = tuple[TabularMDP, Floats, Truth]

PART = 5
"""Instances that are computed together. Fixed, so that results do not depend on the number of processes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The sample: `instances` of each world x `behaviours` x `rollouts`, cut into groups of each of `group_sizes`.

    `behaviours` is the number of the world's behaviours that are used, evenly chosen from its list. At least two groups
    are drawn. `draws` and `seed` together choose processes and random numbers: "choose" and "report" share none for
    seeds below 1,000.
    """

    instances: int = 60
    behaviours: int = 4
    rollouts: int = 64
    group_sizes: tuple[int, ...] = (8,)
    draws: Literal["choose", "report"] = "report"
    seed: int = 0

    def groups(self, group_size: int) -> int:
        """How many groups of a size are drawn for each instance and behaviour."""
        return max(2, self.rollouts // group_size)

    def played(self, world: World) -> tuple[str, ...]:
        """The names of the behaviours that are used."""
        names = world.behaviours
        chosen = np.linspace(0, len(names) - 1, min(self.behaviours, len(names))).round().astype(int)
        return tuple(names[i] for i in chosen)

    @property
    def world_seed(self) -> int:
        """The seed that worlds are made with: even to choose, odd to report."""
        return 2 * self.seed + (self.draws == "report")


QUICK = Settings(instances=10, behaviours=2, rollouts=32)


@dataclass(frozen=True, slots=True, eq=False)
class WorldScores:
    """The outcome in one world at one group size, over R instances, B behaviours and E estimators (the oracle last).

    `success` (R, B): the true J. `failed` (R, B): the fraction of groups without a success, which only the mean
    gradient includes. `scores`: by metric of `BY_GROUP` and by part of `PARTS`, (R, B, E); nan where nothing was found.
    """

    world: str
    group_size: int
    behaviours: tuple[str, ...]
    estimators: tuple[str, ...]
    success: Floats
    failed: Floats
    scores: dict[str, Floats]


def judge(
    world: World,
    estimators: Sequence[Estimator],
    settings: Settings,
    progress: Progress = lambda done, total: None,
    jobs: int = 1,
) -> list[WorldScores]:
    """Judge every estimator, and last the truth itself, in one world; one `WorldScores` per group size.

    `jobs` worker processes give the same results as one. They need estimators and worlds that can be sent to a process:
    functions of a module, not lambdas. `progress` is called with the parts done and the parts in all.
    """
    parts = [range(first, min(first + PART, settings.instances)) for first in range(0, settings.instances, PART)]
    work, results = partial(_judge_part, world, tuple(estimators), settings), list[list[WorldScores]]()
    with worker_pool(jobs) if jobs > 1 else nullcontext() as pool:
        for result in pool.map(work, parts) if pool else map(work, parts):
            results.append(result)
            progress(len(results), len(parts))
    return [_joined(of_size) for of_size in zip(*results, strict=True)]


def _judge_part(
    world: World, estimators: Sequence[Estimator], settings: Settings, instances: Sequence[int]
) -> list[WorldScores]:
    names = settings.played(world)
    mdps = [world.make(settings.world_seed, i) for i in instances]
    # The policy depends on draws, behaviour and instance, but not on the group size.
    streams = [[[settings.world_seed, *name.encode(), i] for name in names] for i in instances]
    plays: list[Play] = []
    for mdp, keys in zip(mdps, streams, strict=True):
        for name, key in zip(names, keys, strict=True):
            policy = behaviour(mdp, name, np.random.default_rng(key))
            plays.append((mdp, policy, evaluate(mdp, policy)))
    flat = [key for keys in streams for key in keys]
    with threadpool_limits(1):
        return [_measure(world.name, names, estimators, settings, plays, flat, size) for size in settings.group_sizes]


def _measure(
    world: str,
    behaviours: tuple[str, ...],
    estimators: Sequence[Estimator],
    settings: Settings,
    plays: Sequence[Play],
    streams: Sequence[Sequence[int]],
    group_size: int,
) -> WorldScores:
    """Sample groups of one size in every play, and score every estimator on them."""
    count = settings.groups(group_size)
    generators = [np.random.default_rng([*stream, group_size]) for stream in streams]
    drawn = sample([(m, p, rng) for (m, p, _), rng in zip(plays, generators, strict=True)], count, group_size)
    process = EmpiricalProcess.from_interned(drawn.rollouts)
    limit = plays[0][0].horizon
    values = np.stack([estimator.values(process, limit) for estimator in estimators])
    groups = metrics.groups_of(drawn, process, values, [play for play in plays for _ in range(count)])
    scored: list[metrics.Scores] = []
    failed = []
    for play in plays:
        scores, lost = _of_play([metrics.with_truth(next(groups)) for _ in range(count)], play[2])
        scored.append(scores)
        failed.append(lost)
    shape = (-1, len(behaviours))
    return WorldScores(
        world,
        group_size,
        behaviours,
        (*(estimator.name for estimator in estimators), ORACLE),
        np.array([truth.success for _, _, truth in plays]).reshape(shape),
        np.array(failed).reshape(shape),
        {name: np.stack([scores[name] for scores in scored]).reshape(*shape, len(values) + 1) for name in scored[0]},
    )


def _of_play(groups: Sequence[Group], truth: Truth) -> tuple[metrics.Scores, float]:
    """The mean score over the groups of one instance and behaviour, and the share of groups without a success."""
    size, true = len(groups[0].values), metrics.unit(truth)
    total, along, squares = np.zeros((size, *true.shape)), np.zeros((len(groups), size)), np.zeros(size)
    by_metric: dict[str, list[Floats]] = {name: [] for name in BY_GROUP}
    for k, group in enumerate(groups):
        anchors, moved = metrics.gradient(group)
        length = (moved**2).sum(axis=(1, 2))
        total[:, anchors] += moved
        along[k] = (moved * true[anchors]).sum(axis=(1, 2))
        squares += length
        if group.won.any():
            cosine = along[k] / np.where(length > TINY**2, np.sqrt(length), np.inf)
            scores = {"cosine": cosine, **metrics.identification(group)}
            for name, score in (scores | metrics.leakage(group) | metrics.repaired(group)).items():
                by_metric[name].append(score)
    nothing = np.full((1, size), np.nan)
    pooled = {name: mean(np.stack(scores) if scores else nothing, axis=0) for name, scores in by_metric.items()}
    pooled |= metrics.mean_gradient(total, along, squares, truth)
    return pooled, float(np.mean([not group.won.any() for group in groups]))


def _joined(results: Sequence[WorldScores]) -> WorldScores:
    """The results of some instances each as one."""
    one = results[0]
    return WorldScores(
        one.world,
        one.group_size,
        one.behaviours,
        one.estimators,
        np.concatenate([result.success for result in results]),
        np.concatenate([result.failed for result in results]),
        {name: np.concatenate([result.scores[name] for result in results]) for name in one.scores},
    )


# ---- statistics over instances ------------------------------------------------------------------


def by_instance(result: WorldScores, metric: str) -> Floats:
    """One value per instance and estimator (R, E), the mean over behaviours; nan where an instance has none.

    `mean_cosine` and `noise` are ratios of sums over instances. Their values are jackknife pseudo-values: the mean
    estimates the ratio, and the deviations its error, so that all metrics are compared in one way.
    """
    if metric in result.scores:
        return mean(result.scores[metric], axis=1)
    parts = [mean(result.scores[part], axis=1) for part in PARTS]
    some = ~np.isnan(parts[0])
    count = some.sum(axis=0)
    parts = [np.where(some, part, 0.0) for part in parts]
    sums = [part.sum(axis=0) for part in parts]
    whole = _ratio(metric, count, *sums)
    without = _ratio(metric, count - some, *(total - part for total, part in zip(sums, parts, strict=True)))
    pseudo: Floats = np.where(some, count * whole - (count - 1) * without, np.nan)
    return pseudo


def _ratio(metric: str, count: Floats, aligned: Floats, kept: Floats, toward: Floats) -> Floats:
    """The metric from the sums of `PARTS` over `count` instances; nan without a sign of an expected gradient."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (count - kept) / kept if metric == "noise" else np.sign(toward) * np.sqrt(aligned / kept)
    return np.where(kept > 0.0, ratio, np.nan)


def estimate(result: WorldScores, metric: str) -> tuple[Floats, Floats]:
    """The mean over instances and the half width of its 95 % interval, each (E,)."""
    return interval(by_instance(result, metric))


def difference(result: WorldScores, metric: str, reference: str) -> tuple[Floats, Floats]:
    """The mean difference from the reference estimator, paired by instance, and its 95 % half width, each (E,)."""
    values = by_instance(result, metric)
    return interval(values - values[:, result.estimators.index(reference), None])


def interval(values: Floats) -> tuple[Floats, Floats]:
    """Mean and 95 % half width by Student's t over the first axis, without nan; nan for fewer than two values."""
    count = (~np.isnan(values)).sum(axis=0)
    middle = mean(values, axis=0)
    squares = np.where(np.isnan(values), 0.0, (values - middle) ** 2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        width = student.ppf(0.975, count - 1) * np.sqrt(squares / (count - 1) / count)
    return middle, np.where(count > 1, width, np.nan)


def mean(values: Floats, axis: int) -> Floats:
    """The mean without nan; nan where there is no value."""
    there = ~np.isnan(values)
    count = there.sum(axis=axis)
    total: Floats = np.where(there, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
