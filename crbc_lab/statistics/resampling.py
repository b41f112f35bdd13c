"""Intervals from a bootstrap over two crossed things at once: seeds, and clusters of tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crbc_lab.statistics.outcomes import Floats, Ints, Outcomes, paired
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.intervals import wilson

RESAMPLES = 10_000
LEVEL = 0.95
BLOCK = 250
"""Resamples drawn at a time. It bounds memory, and is part of the stream: another block draws other numbers."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and the ends of its interval, all in the unit of the outcomes."""

    value: float
    low: float
    high: float

    @classmethod
    def from_draws(cls, value: float, draws: Floats, freedom: float = math.inf) -> Estimate:
        """The 95 % percentile interval of `draws` (R,), stretched about `value` for few degrees of freedom.

        Each end is moved away by t / z, the 97.5 % quantiles of Student's t with `freedom` and of the normal.
        """
        from scipy import stats

        tail = (1 + LEVEL) / 2
        stretch = float(stats.t.ppf(tail, freedom) / stats.norm.ppf(tail))
        low, high = np.quantile(draws, (1 - tail, tail))
        return cls(value, value + stretch * float(low - value), value + stretch * float(high - value))


def estimate(outcomes: Outcomes, rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Estimate:
    """A method's mean over seeds and tasks with its 95 % interval.

    With one seed the interval is over tasks alone, and says nothing about another training. Where all episodes succeed,
    or all fail, resamples are alike, and the interval is Wilson's over clusters. Raises `ConfigError` for fewer than
    two clusters.
    """
    value, freedom = outcomes.mean, crossed_error(outcomes)[1]
    if outcomes.binary and value in (0.0, 1.0):
        clusters = len(outcomes.clusters)
        low, high = wilson(value * clusters, clusters)
        return Estimate(value, min(low, value), max(high, value))  # its rounding may leave the value out
    interval = Estimate.from_draws(value, resample([outcomes], rng, resamples=resamples)[0], freedom)
    return Estimate(value, max(interval.low, 0.0), min(interval.high, 1.0)) if outcomes.binary else interval


def crossed_error(outcomes: Outcomes) -> tuple[float, float]:
    """The standard error of the mean over crossed seeds and clusters, and its degrees of freedom.

    With x_sc the mean of a seed's values in a cluster and w_c the cluster's share of the tasks, m_s = sum_c w_c x_sc,
    u_c the mean of x_sc over seeds, and m the mean of all,

        V_seed    = sum_s (m_s - m)^2 / (S (S - 1))
        V_cluster = C / (C - 1) sum_c w_c^2 (u_c - m)^2
        error     = sqrt(V_seed + V_cluster)

    What is particular to a seed and cluster is in both terms, so the error is rather too large than too small. The
    degrees of freedom are Satterthwaite's: (V_seed + V_cluster)^2 / (V_seed^2 / (S - 1) + V_cluster^2 / (C - 1)). With
    one seed V_seed is 0: the error is that of these policies. Raises `ConfigError` with fewer than two clusters.
    """
    seeds, clusters = outcomes.sums.shape
    if clusters < 2:
        raise ConfigError("all tasks are of one cluster, so nothing shows how tasks differ; take a larger panel")
    share = outcomes.sizes / outcomes.sizes.sum()
    by_cluster = outcomes.sums.mean(axis=0) / outcomes.sizes
    of_clusters = clusters / (clusters - 1) * float(np.square(share * (by_cluster - outcomes.mean)).sum())
    of_seeds = float(outcomes.per_seed.var(ddof=1)) / seeds if seeds > 1 else 0.0
    if of_seeds + of_clusters == 0:
        return 0.0, float(max(seeds - 1, 1))
    weight = of_clusters**2 / (clusters - 1) + (of_seeds**2 / (seeds - 1) if seeds > 1 else 0.0)
    return math.sqrt(of_seeds + of_clusters), (of_seeds + of_clusters) ** 2 / weight


def resample(
    methods: Sequence[Outcomes],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    factor: float | None = None,
) -> Floats:
    """The mean of every method in every resample, (methods, resamples).

    Each resample draws S seeds and C clusters with replacement, the same ones for all methods. So a difference of two
    rows is paired by seed and task. `factor` scales how far each seed lies from the mean over seeds; default
    sqrt(S / (S - 1)), since a bootstrap over S seeds has only (S - 1) / S of their variance. Raises `ConfigError` where
    the methods differ in seeds or tasks.
    """
    paired(methods)
    seeds, clusters = len(methods[0].seeds), len(methods[0].clusters)
    scale = widening(seeds) if factor is None else factor
    values = np.empty((len(methods), resamples))
    for start in range(0, resamples, BLOCK):
        rows = min(BLOCK, resamples - start)
        picked, counts = rng.integers(seeds, size=(rows, seeds)), cluster_counts(rows, clusters, rng)
        for row, method in zip(values, methods, strict=True):
            row[start : start + rows] = _picked(method, picked, counts, scale).mean(axis=1)
    return values


def widening(seeds: int) -> float:
    """sqrt(S / (S - 1)), by which the deviations of S seeds are scaled before they are resampled; 1 for one seed."""
    return math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 1.0


def cluster_counts(rows: int, clusters: int, rng: np.random.Generator) -> Floats:
    """How often each cluster is drawn in each of `rows` resamples with replacement, (rows, clusters)."""
    drawn = rng.integers(clusters, size=(rows, clusters)) + clusters * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(np.float64)


def seed_means(outcomes: Outcomes, counts: Floats) -> Floats:
    """Each seed's mean over resampled clusters, (R, S), from how often each was drawn, `counts` (R, C)."""
    means: Floats = (counts @ outcomes.sums.T) / (counts @ outcomes.sizes)[:, None]
    return means


def _picked(outcomes: Outcomes, picked: Ints, counts: Floats, factor: float) -> Floats:
    """The means of the seeds picked, (R, S), with their deviations scaled by `factor`."""
    means = seed_means(outcomes, counts)
    centre = means.mean(axis=1, keepdims=True)
    return np.take_along_axis(centre + factor * (means - centre), picked, axis=1)
