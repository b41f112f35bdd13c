"""Which numbers of solved tasks a printed mean and standard deviation can come from, if any.

A success rate of one run on N tasks is k / N for an integer k. A mean over n runs is then a multiple of 1 / (n N), and
so most printed means fit some numbers of runs and not others. The standard deviation narrows this down further.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, permutations, product

import numpy as np

from crbc_lab.studies.paper.printed import KINDS, TRAJECTORIES, PrintedValue, Row

Panel = tuple[int, ...]
"""The number of tasks of each of `KINDS`."""
Counts = tuple[int, ...]
"""The number of solved tasks of each run."""

READINGS = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1))
"""Numbers of runs, and the `ddof` of their standard deviation: 0 of the population, 1 of a sample."""
SLACK = 1e-9
"""Percentage points: a value just between two decimals may be rounded either way."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A reading of a row that yields all of its figures: the panel of each run, and the `ddof`."""

    panels: tuple[Panel, ...]
    ddof: int

    @property
    def runs(self) -> int:
        return len(self.panels)


def solutions(cell: PrintedValue, sizes: Sequence[int], ddof: int = 0, half: float = 0.005) -> tuple[Counts, ...]:
    """All solved counts, one per run with `sizes` tasks each, whose mean and deviation print as the cell does.

    `half` is half a unit of the last decimal, in percentage points. A cell without a deviation says nothing about it.
    One run has the deviation 0.
    """
    return _solutions(cell.mean, cell.sd, tuple(sizes), ddof, half)


@lru_cache(maxsize=100_000)
def _solutions(mean: str, sd: str, sizes: tuple[int, ...], ddof: int, half: float) -> tuple[Counts, ...]:
    """All runs but the last take every count; the last one's then follows from the mean."""
    value, runs = float(mean), len(sizes)
    free = np.meshgrid(*(np.arange(size + 1) for size in sizes[:-1]), indexing="ij")
    rest = value / 100 * runs - sum((k / size for k, size in zip(free, sizes, strict=False)), np.zeros(1))
    last = np.rint(rest * sizes[-1]).astype(np.int64)
    counts = np.stack([k.ravel() for k in (*free, last)], axis=-1)
    counts = counts[(counts[:, -1] >= 0) & (counts[:, -1] <= sizes[-1])]
    rates = 100 * counts / np.array(sizes)
    fits = np.abs(rates.mean(axis=1) - value) <= half + SLACK
    if sd:
        deviations = rates.std(axis=1, ddof=ddof) if runs > ddof else np.zeros(len(rates))
        fits &= np.abs(deviations - float(sd)) <= half + SLACK
    return tuple(tuple(one) for one in counts[fits].tolist())


def overall_readings(cell: PrintedValue, half: float = 0.005, size: int = TRAJECTORIES) -> list[tuple[int, int]]:
    """The numbers of runs and `ddof` that fit a success over all tasks; a cell without deviation is one run's."""
    readings = READINGS if cell.sd else READINGS[:1]
    return [(runs, ddof) for runs, ddof in readings if solutions(cell, (size,) * runs, ddof, half)]


def row_fits(row: Row, panels: Sequence[Panel], kinds: Sequence[str] = KINDS) -> list[Fit]:
    """The readings under which runs on some of `panels` yield every kind's figure, and "All" at the same time.

    A row without deviations is one run's. `kinds` names the panels' columns in the row.
    """
    readings = READINGS if row.cells["All"].sd else READINGS[:1]
    return [
        Fit(chosen, ddof)
        for runs, ddof in readings
        for chosen in combinations_with_replacement(panels, runs)
        if fits_together(row, chosen, ddof, kinds)
    ]


def fits_together(row: Row, panels: tuple[Panel, ...], ddof: int, kinds: Sequence[str] = KINDS) -> bool:
    """Whether some integers, one per run and kind, print as all seven figures of the row."""
    totals = {(0,) * len(panels)}
    for kind, sizes in zip(kinds, zip(*panels, strict=True), strict=True):
        counts = solutions(row.cells[kind], sizes, ddof, row.half)
        totals = {tuple(a + b for a, b in zip(total, more, strict=True)) for total in totals for more in counts}
    sizes = tuple(sum(panel) for panel in panels)
    return not totals.isdisjoint(solutions(row.cells["All"], sizes, ddof, row.half))


def smallest_panel(singles: Sequence[Row]) -> dict[str, list[int]]:
    """The sizes up to 60 of each kind at which the figures of all of these single runs are multiples of 1 / size."""
    return {
        kind: [size for size in range(1, 61) if all(solutions(row.cells[kind], (size,)) for row in singles)]
        for kind in KINDS
    }


def neighbours(panel: Panel) -> Iterator[Panel]:
    """The panels with one task of another kind."""
    for source in range(len(panel)):
        for target in range(len(panel)):
            if source != target:
                yield tuple(size + (i == target) - (i == source) for i, size in enumerate(panel))


def second_panel(row_list: Sequence[Row], first: Panel) -> Counter[Panel]:
    """How many rows, unexplained by `first` alone, each of its neighbours explains together with it."""
    left = [row for row in row_list if not row_fits(row, [first])]
    return Counter({other: sum(bool(row_fits(row, [first, other])) for row in left) for other in neighbours(first)})


def weighted(row: Row, panel: Mapping[str, int]) -> float:
    """The mean of the row's kinds, each weighted by its number of tasks."""
    return sum(row.cells[kind].value * size for kind, size in panel.items()) / sum(panel.values())


def own_panels(row: Row, runs: int = 3, spread: int = 2, ddof: int = 0) -> list[tuple[Panel, ...]]:
    """Panels of `TRAJECTORIES` tasks, one per run, from which all figures of a row can come; for a row that fits none.

    The sizes of a kind differ by `spread` at most between runs. Runs have no order, so equal sets are given once.
    """
    sizes = [
        [
            sizes_of_runs
            for first in range(1, 61)
            for sizes_of_runs in combinations_with_replacement(range(first, first + spread + 1), runs)
            if sizes_of_runs[0] == first and solutions(row.cells[kind], sizes_of_runs, ddof, row.half)
        ]
        for kind in KINDS
    ]
    fitting: set[tuple[Panel, ...]] = set()
    for chosen in product(*sizes):
        if sum(map(sum, chosen)) != runs * TRAJECTORIES:
            continue
        for shuffled in product(*(sorted(set(permutations(some))) for some in chosen)):
            panels = tuple(sorted(zip(*shuffled, strict=True)))
            whole = all(sum(panel) == TRAJECTORIES for panel in panels)
            if whole and panels not in fitting and fits_together(row, panels, ddof):
                fitting.add(panels)
    return sorted(fitting)
