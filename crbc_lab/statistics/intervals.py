"""Means with their intervals, over two crossed things at once: seeds, and clusters of tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from crbc_lab.statistics.outcomes import Outcomes
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.intervals import wilson

ALPHA = 0.05
"""Intervals hold the truth in all other cases, and tests see in as many what is not there."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and the ends of its interval, all in the unit of the outcomes."""

    value: float
    low: float
    high: float

    def percent(self, form: str = ".1f") -> str:
        """As tables have it, in percent or points: 62.4 (57.5 to 67.4)."""
        value, low, high = (f"{100 * number:{form}}" for number in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Variance:
    """A variance and its degrees of freedom."""

    value: float
    freedom: int


def quantile(q: float, freedom: float) -> float:
    """Of Student's t. `scipy.stats` takes more than a second to import, and a page asks often."""
    return float(stdtrit(freedom, q))


def interval(value: float, error: float, freedom: float) -> Estimate:
    """The 95 % interval of Student's t."""
    half = quantile(1 - ALPHA / 2, freedom) * error
    return Estimate(value, value - half, value + half)


def estimate(outcomes: Outcomes) -> Estimate:
    """A method's mean over seeds and tasks with its 95 % interval.

    With one seed the interval is over tasks alone, and says nothing about another training. Where all episodes succeed,
    or all fail, nothing shows an error, and the interval is Wilson's over clusters. Raises `ConfigError` for fewer than
    two clusters.
    """
    value, clusters = outcomes.mean, len(outcomes.clusters)
    found = interval(value, *crossed_error(outcomes))
    if not outcomes.binary:
        return found
    if value in (0.0, 1.0):
        low, high = wilson(value * clusters, clusters)
        return Estimate(value, min(low, value), max(high, value))  # its rounding may leave the value out
    return Estimate(value, max(found.low, 0.0), min(found.high, 1.0))


def crossed_error(outcomes: Outcomes, between: Variance | None = None) -> tuple[float, float]:
    """The standard error of the mean over crossed seeds and clusters, and its degrees of freedom.

    With x_sc the mean of a seed's values in a cluster and w_c the cluster's share of the tasks, m_s = sum_c w_c x_sc,
    u_c the mean of x_sc over seeds, and m the mean of all,

        V_seed    = sum_s (m_s - m)^2 / (S (S - 1))
        V_cluster = C / (C - 1) sum_c w_c^2 (u_c - m)^2
        error     = sqrt(V_seed + V_cluster)

    What is particular to a seed and cluster is in both terms, so the error is rather too large than too small. The
    degrees of freedom are Satterthwaite's: (V_seed + V_cluster)^2 / (V_seed^2 / f + V_cluster^2 / (C - 1)), f = S - 1.
    `between` is a variance of the m_s that is known better, with its f. With one seed V_seed is 0: the error is that of
    these policies. Raises `ConfigError` with fewer than two clusters.
    """
    seeds, clusters = outcomes.sums.shape
    if clusters < 2:
        raise ConfigError("all tasks are of one cluster, so nothing shows how tasks differ; take a larger panel")
    share = outcomes.sizes / outcomes.sizes.sum()
    by_cluster = outcomes.sums.mean(axis=0) / outcomes.sizes
    of_clusters = clusters / (clusters - 1) * float(np.square(share * (by_cluster - outcomes.mean)).sum())
    own = Variance(float(outcomes.per_seed.var(ddof=1)) if seeds > 1 else 0.0, max(seeds - 1, 1))
    between = own if between is None else between
    of_seeds = between.value / seeds
    if of_seeds + of_clusters == 0:
        return 0.0, float(between.freedom)
    weight = of_clusters**2 / (clusters - 1) + of_seeds**2 / between.freedom
    return math.sqrt(of_seeds + of_clusters), (of_seeds + of_clusters) ** 2 / weight
