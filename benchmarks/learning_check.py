"""Recomputes the learning study's verdicts from its result files, and counts false alarms among shuffled methods.

    python -m benchmarks.learning_check results/learning --shuffles 1000 --seeds 5

It shares no code with the package: it reads JSON, and the statistics are written out anew from docs/statistics.md. In a
shuffle the methods exchange their names within each seed of each world, so no method differs from another. The share of
shuffles that call anything separated is the rate of false alarms of the whole family.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Areas = dict[str, dict[str, Floats]]
"""By world and method: the area of every seed and instance, (seeds, instances)."""

REFERENCE, BOUNDS = "crbc", ("truth", "shuffled")
ALPHA, ALIKE, FEWEST = 0.05, 0.2, 5


def read(folder: Path) -> Areas:
    """All results of a study's folder but those that bound the others."""
    found: Areas = {}
    for path in sorted(folder.glob("*/*/*.json")):
        told = json.loads(path.read_text())
        if told["estimator"] not in BOUNDS:
            found.setdefault(told["setting"], {})[told["estimator"]] = np.array(told["values"])
    return found


def p_values(areas: Floats, reference: int) -> Floats:
    """p of every method of a world beside its `reference`, (M,), from areas (M, seeds, instances)."""
    methods, seeds, instances = areas.shape
    by_run = areas.mean(axis=2)
    left = by_run - by_run.mean(axis=0)
    left = left - left.mean(axis=1, keepdims=True)
    differences = areas - areas[reference]
    by_instance = differences.mean(axis=1).var(axis=1, ddof=1) / instances
    away = np.abs(by_run - np.median(by_run, axis=1, keepdims=True))
    if methods == 2 or not np.round(left, 12).any() or (seeds >= FEWEST and stats.f_oneway(*away).pvalue >= ALIKE):
        freedom = (methods - 1) * (seeds - 1)
        by_seed = np.full(methods, 2 * (left**2).sum() / freedom / seeds)
    else:
        freedom = seeds - 1
        by_seed = differences.mean(axis=2).var(axis=1, ddof=1) / seeds
    variance = by_seed + by_instance
    weight = by_seed**2 / freedom + by_instance**2 / (instances - 1)
    means = np.abs(differences.mean(axis=(1, 2)))
    with np.errstate(divide="ignore", invalid="ignore"):  # equal methods differ by nothing, and so does the reference
        p = np.where(means == 0, 1.0, 2 * stats.t.sf(means / np.sqrt(variance), variance**2 / weight))
    return np.maximum(p, 2.0 ** (1 - seeds * instances))


def holm(p: Floats) -> Floats:
    """Each p times how many are not smaller, made to rise with p."""
    order = np.argsort(p, kind="stable")
    adjusted, highest = np.empty(len(p)), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, p[place] * (len(p) - rank))
        adjusted[place] = min(1.0, highest)
    return adjusted


def separated(areas: Areas) -> dict[tuple[str, str], tuple[float, float, bool]]:
    """By world and method: the difference from CRBC's area, Holm's p over all of them, and whether it is separated."""
    places, means, p = [], [], []
    for world, methods in areas.items():
        if REFERENCE not in methods:
            continue
        found = p_values(np.stack(list(methods.values())), list(methods).index(REFERENCE))
        for name, one in zip(methods, found, strict=True):
            if name != REFERENCE:
                places.append((world, name))
                means.append((methods[name] - methods[REFERENCE]).mean())
                p.append(one)
    corrected = holm(np.array(p))
    return {place: (float(m), float(c), bool(c < ALPHA)) for place, m, c in zip(places, means, corrected, strict=True)}


def shuffled(areas: Areas, seeds: int, rng: np.random.Generator) -> Areas:
    """`seeds` drawn seeds of every world, with the methods' names exchanged within each."""
    mixed: Areas = {}
    for world, methods in areas.items():
        table = np.stack(list(methods.values()))
        picked = rng.permutation(table.shape[1])[:seeds]
        order = np.argsort(rng.random((len(methods), seeds)), axis=0)
        mixed[world] = dict(zip(methods, table[:, picked][order, np.arange(seeds)], strict=True))
    return mixed


def false_alarms(areas: Areas, shuffles: int, seeds: int, rng: np.random.Generator) -> tuple[int, float]:
    """How many shuffles call anything separated, and the upper end of the share's 95 % interval (Clopper, Pearson)."""
    wrong = sum(any(one[2] for one in separated(shuffled(areas, seeds, rng)).values()) for _ in range(shuffles))
    return wrong, 1.0 if wrong == shuffles else float(stats.beta.ppf(0.975, wrong + 1, shuffles - wrong))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shuffles", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    areas = read(asked.folder)
    for (world, name), (difference, corrected, seen) in separated(areas).items():
        print(f"{world:<20} {name:<24} {100 * difference:+6.1f}  p {corrected:.3f}{' *' * seen}")
    wrong, upper = false_alarms(areas, asked.shuffles, asked.seeds, np.random.default_rng(0))
    print(f"{wrong} of {asked.shuffles} shuffles of {asked.seeds} seeds call something separated: at most {upper:.1%}")


if __name__ == "__main__":
    main()
