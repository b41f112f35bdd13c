"""Methods beside a reference: paired differences, p-values, their correction, and what could have been seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import nctdtr, nctdtrinc, stdtr

from crbc_lab.statistics.intervals import ALPHA, Estimate, Variance, crossed_error, interval, quantile
from crbc_lab.statistics.outcomes import Floats, Outcomes, paired
from crbc_rl.errors import ConfigError, nearest

POWER = 0.8
ALIKE = 0.2
"""The level of the test whether methods spread alike. It is above 5 %, since few seeds seldom show that they do not."""
FEWEST = 5
"""Seeds from which on that test is asked."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A method minus its reference, paired by seed and task.

    `difference` is that of the means with its 95 % interval, `error` its standard error and `freedom` that error's
    degrees of freedom. `p` is two-sided of the same error: it is below 5 % where the interval excludes 0. `corrected`
    is Holm's over all comparisons of the table, and `smallest` the difference that would be seen with 80 % power at the
    level of the first of them.
    """

    name: str
    difference: Estimate
    error: float
    freedom: float
    p: float
    corrected: float
    smallest: float

    @property
    def separated(self) -> bool:
        """Whether a table may call the two different."""
        return self.corrected < ALPHA


def compare(methods: Mapping[str, Outcomes], reference: str | Mapping[str, str]) -> list[Comparison]:
    """Every method beside its reference, in the order given, with p-values corrected for the number of comparisons.

    `reference` names the method that all others are compared with, or for each one that is compared its own. How
    trainings differ is learned from all methods where they spread alike (`between_trainings`). Raises `ConfigError` for
    a reference that is none of the methods, where methods differ in seeds or tasks, and with fewer than two seeds or
    clusters.
    """
    paired(methods)
    if isinstance(reference, str):
        reference = dict.fromkeys((name for name in methods if name != reference), reference)
    for name in (*reference, *reference.values()):
        if name not in methods:
            raise ConfigError(
                f"{name!r} is none of the methods{nearest(name, methods)}; there are {', '.join(methods)}"
            )
    if len(next(iter(methods.values())).seeds) < 2:
        raise ConfigError(
            "one seed says nothing about another training, so methods cannot be compared; train more, such as crbc "
            "train CONFIG --seeds 0-4"
        )
    if not reference:
        return []
    between = between_trainings(list(methods.values()))
    comparisons = []
    for name, other in reference.items():
        delta = replace(methods[name], values=methods[name].values - methods[other].values)
        error, freedom = crossed_error(delta, between)
        floor = 2.0 ** (1 - delta.sums.size)  # of sign flips of all S x C cells; equal differences have no error at all
        p = max(p_value(delta.mean, error, freedom), floor)
        least = smallest_difference(error, freedom, ALPHA / len(reference))
        comparisons.append(Comparison(name, interval(delta.mean, error, freedom), error, freedom, p, p, least))
    corrected = holm([one.p for one in comparisons])
    return [replace(one, corrected=float(p)) for one, p in zip(comparisons, corrected, strict=True)]


def between_trainings(methods: Sequence[Outcomes], level: float = ALIKE) -> Variance | None:
    """The variance of the difference of two methods in one seed, learned from all K of them; None where they do not
    spread alike, so that each pair has to tell its own.

    With m_ks the mean of a method's seed, and what it leaves beside the means of its method and its seed,

        r_ks = m_ks - m_k - m_s + m,        2 sum r_ks^2 / ((K - 1) (S - 1)),        (K - 1) (S - 1) degrees of freedom

    They do not spread alike where Brown and Forsythe's test of the m_ks is below `level`, and with fewer than `FEWEST`
    seeds nothing shows whether they do. With two methods it is the variance of their differences.
    """
    means = np.array([one.per_seed for one in methods])
    left = means - means.mean(axis=1, keepdims=True) - means.mean(axis=0) + means.mean()
    left = np.round(left, 12)  # sums round, and equal methods must leave nothing
    if level and len(methods) > 2 and left.any():
        few = means.shape[1] < FEWEST
        if few or _spreads_differ(means) < level:
            return None
    freedom = (len(methods) - 1) * (means.shape[1] - 1)
    return Variance(2 * float(np.square(left).sum()) / freedom, freedom)


def _spreads_differ(means: Floats) -> float:
    """p of Brown and Forsythe's test whether the rows of (K, S) spread alike."""
    from scipy import stats  # here, since it takes more than a second

    return float(stats.levene(*means, center="median").pvalue)


def p_value(difference: float, error: float, freedom: float) -> float:
    """Two-sided, of difference / error under Student's t: how often chance alone gives such a difference.

    docs/statistics.md has its measured rate of false alarms, beside those of a bootstrap and of sign flips.
    """
    if difference == 0:
        return 1.0
    return float(2 * stdtr(freedom, -abs(difference) / error)) if error > 0 else 0.0


def smallest_difference(error: float, freedom: float, alpha: float = ALPHA) -> float:
    """The smallest true difference that a paired design of this error would find, in the unit of the outcomes.

    A two-sided test at `alpha` finds it with 80 % power. `error` holds the variance between seeds and between clusters
    that is in the data. Of few trainings it is hardly known itself, so that difference / error has the noncentral t.
    """
    return float(nctdtrinc(freedom, 1 - POWER, quantile(1 - alpha / 2, freedom))) * error


def power(difference: float, error: float, freedom: float, alpha: float = ALPHA) -> float:
    """How often a design of this error would find a true `difference`; 80 % for `smallest_difference`."""
    if error == 0:
        return float(difference != 0)
    found = float(1 - nctdtr(freedom, abs(difference) / error, quantile(1 - alpha / 2, freedom)))
    return 1.0 if math.isnan(found) else found  # where the chance to miss it underflows


def holm(p: ArrayLike) -> Floats:
    """Holm's corrected p-values, in the order given, (m,).

    The i-th smallest of m, from 0, is multiplied by m - i; none is below a smaller one's, and none above 1. The chance
    of one false claim among all stays below 5 % (Holm 1979). `scipy.stats.false_discovery_control` bounds the share of
    false claims instead, for a search that a later study confirms.
    """
    given = np.asarray(p, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    raised = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(raised, 1.0)
    return corrected
