"""Methods beside a reference: paired differences, p-values, their correction, and what could have been seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from crbc_lab.statistics.outcomes import Floats, Outcomes, paired
from crbc_lab.statistics.resampling import (
    BLOCK,
    RESAMPLES,
    Estimate,
    cluster_counts,
    crossed_error,
    resample,
    seed_means,
)
from crbc_rl.errors import ConfigError

ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True, slots=True)
class Comparison:
    """A method minus its reference, paired by seed and task.

    `difference` is that of the means with its joint interval. `error` is its standard error and `freedom` that error's
    degrees of freedom (`crossed_error`). `p` is two-sided; `corrected` is Holm's over all comparisons of the table.
    `smallest` is the difference that would be seen with 80 % power. `improvement` is `improvement()`'s.
    """

    name: str
    difference: Estimate
    error: float
    freedom: float
    p: float
    corrected: float
    smallest: float
    improvement: Estimate

    @property
    def separated(self) -> bool:
        return separated(self.difference.value, self.corrected, self.smallest)


def compare(
    methods: Mapping[str, Outcomes],
    reference: str | Mapping[str, str],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
) -> list[Comparison]:
    """Every method beside its reference, in the order given, with p-values corrected for the number of comparisons.

    `reference` names the method that all others are compared with, or for each one that is compared its own. All
    intervals come from the same resamples. Raises `ConfigError` where methods differ in seeds or tasks, and with fewer
    than two seeds or clusters.
    """
    paired(methods)
    if isinstance(reference, str):
        reference = {name: reference for name in methods if name != reference}
    if len(next(iter(methods.values())).seeds) < 2:
        raise ConfigError(
            "one seed says nothing about another training, so methods cannot be compared; train more, such as crbc "
            "train CONFIG --seeds 0-4"
        )
    draws = dict(zip(methods, resample(list(methods.values()), rng, resamples=resamples), strict=True))
    comparisons = []
    for name, other in reference.items():
        delta = _difference(methods[name], methods[other])
        error, freedom = crossed_error(delta)
        floor = 2.0 ** (1 - delta.sums.size)  # of sign flips of all S x C cells; equal differences have no error at all
        p = max(p_value(delta.mean, error, freedom), floor)
        comparisons.append(
            Comparison(
                name,
                Estimate.from_draws(delta.mean, draws[name] - draws[other], freedom),
                error,
                freedom,
                p,
                p,
                smallest_difference(error, freedom),
                improvement(methods[name], methods[other], rng, resamples=resamples),
            )
        )
    corrected = holm([one.p for one in comparisons])
    return [replace(one, corrected=float(p)) for one, p in zip(comparisons, corrected, strict=True)]


def p_value(difference: float, error: float, freedom: float) -> float:
    """Two-sided, of difference / error under Student's t: how often chance alone gives such a difference.

    docs/statistics.md has its measured rate of false alarms, beside those of a bootstrap and of sign flips.
    """
    from scipy import stats  # here, as a list of studies does without: it takes more than a second

    if difference == 0:
        return 1.0
    return float(2 * stats.t.sf(abs(difference) / error, freedom)) if error > 0 else 0.0


def smallest_difference(error: float, freedom: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest true difference that a paired design of this error would find, in the unit of the outcomes.

        (t(1 - alpha / 2) + t(power)) * error,        t(q) the quantile of Student's t with `freedom`

    It is found with probability `power` by a two-sided test at `alpha`, here 80 % and 5 %. `error` holds the variance
    between seeds and between clusters that is in the data (`crossed_error` of the differences).
    """
    from scipy import stats

    return float(stats.t.ppf(1 - alpha / 2, freedom) + stats.t.ppf(power, freedom)) * error


def separated(difference: float, corrected: float, smallest: float) -> bool:
    """Whether a table may call two methods different: corrected p below 5 %, and a difference that could be seen."""
    return corrected < ALPHA and abs(difference) >= smallest


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


def improvement(
    method: Outcomes, reference: Outcomes, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> Estimate:
    """P(X > Y): how often one training of the method beats one of the reference on the panel, ties counting half.

    Over all S x S pairs of trainings, as the statistic of Mann and Whitney over S^2. Each resample draws clusters, and
    trainings of either method by themselves. Raises `ConfigError` where seeds or tasks differ.
    """
    paired([method, reference])
    seeds, clusters = len(method.seeds), len(method.clusters)
    draws = []
    for start in range(0, resamples, BLOCK):
        rows = min(BLOCK, resamples - start)
        counts = cluster_counts(rows, clusters, rng)
        mine, theirs = (
            np.take_along_axis(seed_means(one, counts), rng.integers(seeds, size=(rows, seeds)), axis=1)
            for one in (method, reference)
        )
        draws.append(_wins(mine, theirs))
    value = float(_wins(method.per_seed[None], reference.per_seed[None])[0])
    return Estimate.from_draws(value, np.concatenate(draws))


def _wins(mine: Floats, theirs: Floats) -> Floats:
    """The share of pairs that the first wins, (R,), from (R, S) each. Rounding is no win: means come from sums."""
    ahead = np.round(mine[:, :, None] - theirs[:, None, :], 12)
    won: Floats = (0.5 * np.sign(ahead) + 0.5).mean(axis=(1, 2))
    return won


def _difference(method: Outcomes, reference: Outcomes) -> Outcomes:
    """The differences of values as outcomes of their own."""
    return replace(method, values=method.values - reference.values)
