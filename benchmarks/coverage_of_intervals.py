"""Measures how often 95 % intervals hold the truth, and how often p-values see a difference that is not there.

    python -m benchmarks.coverage_of_intervals                 # the tables of docs/statistics.md, about three minutes
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

from crbc_lab.statistics import (
    Estimate,
    Outcomes,
    crossed_error,
    estimate,
    p_value,
    resample,
    widening,
)
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


def study(design: Design, rng: np.random.Generator) -> tuple[Outcomes, Outcomes]:
    """The outcomes of two equally good methods."""
    of_task = np.repeat(np.arange(design.clusters), design.tasks)
    shared = rng.normal(0, design.cluster, design.clusters)
    methods = []
    for _ in range(2):
        effects = shared + rng.normal(0, design.method, design.clusters)
        odds = CENTRE + effects + rng.normal(0, design.training, (design.seeds, 1))
        odds = odds + rng.normal(0, design.both, (design.seeds, design.clusters))
        wins = rng.random((design.seeds, len(of_task))) < 1 / (1 + np.exp(-odds[:, of_task]))
        labels = np.arange(design.seeds), np.arange(len(of_task)), np.arange(design.clusters)
        methods.append(Outcomes(*labels, of_task, wins.astype(np.float64)))
    return methods[0], methods[1]


def intervals(outcomes: Outcomes, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """The ends of each of `INTERVALS`."""
    seeds, value = len(outcomes.seeds), outcomes.mean
    student = float(stats.t.ppf(0.975, seeds - 1) / stats.norm.ppf(0.975))
    factors = {"": 1.0, ", variance": widening(seeds), ", t": widening(seeds) * student}
    ends = {"Wilson": wilson(value * outcomes.values.size, outcomes.values.size)}
    for name, factor in factors.items():
        found = Estimate.from_draws(value, resample([outcomes], rng, resamples=RESAMPLES, factor=factor)[0])
        ends[f"percentile{name}"] = found.low, found.high
    ours = estimate(outcomes, rng, resamples=RESAMPLES)
    return {**ends, "ours": (ours.low, ours.high)}


def p_values(method: Outcomes, reference: Outcomes, rng: np.random.Generator) -> tuple[dict[str, float], bool]:
    """The p-value of each of `TESTS`, and whether our interval of the difference holds 0."""
    delta = replace(method, values=method.values - reference.values)
    draws = resample([reference, method], rng, resamples=RESAMPLES)
    moved = draws[1] - draws[0]
    error, freedom = crossed_error(delta)
    found = Estimate.from_draws(delta.mean, moved, freedom)
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
    show(DESIGNS, rates, Console(width=200))


if __name__ == "__main__":
    main()
