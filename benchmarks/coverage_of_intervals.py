"""Measures how often 95 % intervals hold the truth, and how often p-values see a difference that is not there.

    python -m benchmarks.coverage_of_intervals --studies 1000  # the tables of docs/statistics.md, about two minutes
    python -m benchmarks.coverage_of_intervals --studies 100   # rougher, a few seconds

A simulated study trains two equally good methods with S seeds each and plays C clusters of tasks once with every seed.
The log-odds of success are a constant plus normal effects of the training, of the cluster, of method and cluster, and
of training and cluster. The true success is an integral over these effects.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table
from scipy import stats

from crbc_lab.statistics import Outcomes, between_trainings, crossed_error, estimate, holm, interval, p_value
from crbc_lab.statistics.comparison import ALIKE
from crbc_rl.rollout.intervals import wilson

Floats = NDArray[np.float64]

CENTRE = 0.5
"""Log-odds of success of an average training at an average task: 62 %."""
RESAMPLES = 1_000
MANY = 12
"""Methods beside one reference; Holm's strictest bound is 5 % over as many."""


@dataclass(frozen=True, slots=True)
class Design:
    """The numbers of a simulated study, and the standard deviations of its effects in log-odds."""

    seeds: int
    training: float
    both: float = 0.3
    clusters: int = 32
    tasks: int = 4
    cluster: float = 1.0
    method: float = 0.3


DESIGNS = (
    *(Design(seeds, training) for seeds in (3, 5, 10) for training in (0.0, 0.3, 0.6)),
    Design(3, 0.3, clusters=128, tasks=1),
    Design(5, 0.3, clusters=128, tasks=1),
)

INTERVALS = ("Wilson", "percentile", "percentile, variance", "percentile, t", "ours")
TESTS = ("bootstrap", "sign flips", "two-way", "ours")


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of studies: `held` by interval, and `alarms` by test, at 5 % and at 5 % over `MANY`."""

    held: dict[str, float]
    held_difference: float
    alarms: dict[str, tuple[float, float]]


def truth(design: Design) -> float:
    """The success rate over all trainings and clusters."""
    spread = math.hypot(design.training, design.cluster, design.method, design.both)
    nodes, weights = hermegauss(60)
    return float(weights @ (1 / (1 + np.exp(-CENTRE - spread * nodes))) / weights.sum())


def study(design: Design, rng: np.random.Generator, spreads: Sequence[float] = (1.0, 1.0)) -> list[Outcomes]:
    """The outcomes of equally good methods, whose trainings differ `spreads` times as much as the design says."""
    of_task = np.repeat(np.arange(design.clusters), design.tasks)
    shared = rng.normal(0, design.cluster, design.clusters)
    methods = []
    for spread in spreads:
        effects = shared + rng.normal(0, design.method, design.clusters)
        odds = CENTRE + effects + rng.normal(0, spread * design.training, (design.seeds, 1))
        odds = odds + rng.normal(0, design.both, (design.seeds, design.clusters))
        wins = rng.random((design.seeds, len(of_task))) < 1 / (1 + np.exp(-odds[:, of_task]))
        labels = np.arange(design.seeds), np.arange(len(of_task)), np.arange(design.clusters)
        methods.append(Outcomes(*labels, of_task, wins.astype(np.float64)))
    return methods


def intervals(outcomes: Outcomes, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """The ends of each of `INTERVALS`."""
    seeds, value = len(outcomes.seeds), outcomes.mean
    wider = math.sqrt(seeds / (seeds - 1))  # a bootstrap over S seeds has only (S - 1) / S of their variance
    student = float(stats.t.ppf(0.975, seeds - 1) / stats.norm.ppf(0.975))
    factors = {"": 1.0, ", variance": wider, ", t": wider * student}
    ends = {"Wilson": wilson(value * outcomes.values.size, outcomes.values.size)}
    for name, factor in factors.items():
        low, high = np.quantile(resample(outcomes, rng, factor), (0.025, 0.975))
        ends[f"percentile{name}"] = float(low), float(high)
    ours = estimate(outcomes)
    return {**ends, "ours": (ours.low, ours.high)}


def resample(outcomes: Outcomes, rng: np.random.Generator, factor: float = 1.0) -> Floats:
    """The mean in every resample, (RESAMPLES,): of seeds, whose distance from their mean is scaled by `factor`, and of
    clusters, both drawn with replacement."""
    seeds, clusters = outcomes.sums.shape
    picked = rng.integers(seeds, size=(RESAMPLES, seeds))
    counts = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    means = (counts @ outcomes.sums.T) / (counts @ outcomes.sizes)[:, None]
    centre = means.mean(axis=1, keepdims=True)
    drawn: Floats = np.take_along_axis(centre + factor * (means - centre), picked, axis=1).mean(axis=1)
    return drawn


def p_values(method: Outcomes, reference: Outcomes, rng: np.random.Generator) -> tuple[dict[str, float], bool]:
    """The p-value of each of `TESTS`, and whether our interval of the difference holds 0."""
    delta = replace(method, values=method.values - reference.values)
    moved = resample(delta, rng)
    error, freedom = crossed_error(delta)
    found = interval(delta.mean, error, freedom)
    tail = min(int((moved <= 0).sum()), int((moved >= 0).sum())) + 1
    flips = rng.choice((-1.0, 1.0), size=(RESAMPLES, delta.sums.size))
    beyond = np.abs(flips @ delta.sums.ravel()) >= abs(delta.sums.sum()) - 1e-9
    less = math.sqrt(max(error**2 - both_variance(delta), error**2 / 2))
    p = {
        "bootstrap": min(1.0, 2 * tail / (RESAMPLES + 1)),
        "sign flips": float((beyond.sum() + 1) / (RESAMPLES + 1)),
        "two-way": p_value(delta.mean, less, freedom),
        "ours": p_value(delta.mean, error, freedom),
    }
    return p, found.low <= 0 <= found.high


def both_variance(outcomes: Outcomes) -> float:
    """The variance of the mean by what is particular to a seed and cluster, which `crossed_error` counts twice.

    Two-way clustering takes it off once (Cameron, Gelbach and Miller 2011). The caller keeps half of the variance.
    """
    seeds, clusters = outcomes.sums.shape
    share = outcomes.sizes / outcomes.sizes.sum()
    cell = outcomes.sums / outcomes.sizes
    left = cell - (cell @ share)[:, None] - cell.mean(axis=0) + outcomes.mean
    found: float = np.square(share * left).sum() * clusters / (clusters - 1) / (seeds * (seeds - 1))
    return found


def measure(design: Design, studies: int, rng: np.random.Generator) -> Rates:
    """The rates over `studies` simulated studies."""
    true = truth(design)
    held, alarms = dict.fromkeys(INTERVALS, 0), {name: [0, 0] for name in TESTS}
    differences = 0
    for _ in range(studies):
        method, reference = study(design, rng)
        for name, (low, high) in intervals(method, rng).items():
            held[name] += low <= true <= high
        p, holds = p_values(method, reference, rng)
        differences += holds
        for name, value in p.items():
            alarms[name][0] += value < 0.05
            alarms[name][1] += value < 0.05 / MANY
    return Rates(
        {name: count / studies for name, count in held.items()},
        differences / studies,
        {name: (one / studies, many / studies) for name, (one, many) in alarms.items()},
    )


FAMILIES = {"alike": (1.0,) * 5, "one three times": (1.0,) * 4 + (3.0,), "reference three times": (3.0,) + (1.0,) * 4}
"""How much the trainings of five methods differ; the first is the reference."""


def families(seeds: int, spreads: Sequence[float], studies: int, rng: np.random.Generator) -> list[float]:
    """Shares of studies in which Holm's correction leaves anything: of each pair's own variance, of one learned from
    all methods, and of ours, which tests whether they spread alike; and how often ours took that of all."""
    alarms, design = np.zeros(4), Design(seeds, 0.3)
    for _ in range(studies):
        methods = dict(zip("rabcd", study(design, rng, spreads), strict=True))
        deltas = [replace(one, values=one.values - methods["r"].values) for name, one in methods.items() if name != "r"]
        tested, all_of_them = (between_trainings([*methods.values()], level) for level in (ALIKE, 0.0))
        p = [
            [p_value(delta.mean, *crossed_error(delta, between)) for delta in deltas]
            for between in (None, all_of_them, tested)
        ]
        alarms += [*(holm(each).min() < 0.05 for each in p), tested is not None]
    return list(alarms / studies)


def show(designs: Sequence[Design], rates: Sequence[Rates], console: Console) -> None:
    """Print both tables in Markdown."""
    heads = ("seeds", "clusters x tasks", "training")
    first = _table((*heads, *INTERVALS, "ours, difference"))
    second = _table((*heads, *(f"{name}, {level}" for level in ("5 %", "0.42 %") for name in TESTS)))
    for design, rate in zip(designs, rates, strict=True):
        about = str(design.seeds), f"{design.clusters} x {design.tasks}", f"{design.training:.1f}"
        shares = [*(rate.held[name] for name in INTERVALS), rate.held_difference]
        first.add_row(*about, *(f"{share:.1%}" for share in shares))
        second.add_row(*about, *(f"{rate.alarms[name][level]:.1%}" for level in (0, 1) for name in TESTS))
    console.print(first)
    console.print(second)


def show_families(studies: int, rng: np.random.Generator, console: Console) -> None:
    """Print the table of families in Markdown."""
    table = _table(("seeds", "how far trainings differ", "own", "of all", "ours", "ours is of all"))
    for seeds in (3, 5, 10, 20):
        for name, spreads in FAMILIES.items():
            table.add_row(str(seeds), name, *(f"{share:.1%}" for share in families(seeds, spreads, studies, rng)))
    console.print(table)


def _table(heads: Sequence[str]) -> Table:
    table = Table(box=MARKDOWN)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2_000, help="simulated studies of each design")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    rates = [measure(design, args.studies, rng) for design in DESIGNS]
    console = Console(width=200)
    show(DESIGNS, rates, console)
    show_families(args.studies, rng, console)


if __name__ == "__main__":
    main()
