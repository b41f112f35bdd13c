"""What the learning study shows: areas beside CRBC's with intervals over seeds and instances, by setting and method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from crbc_lab.statistics import Outcomes, compare, holm, smallest_difference
from crbc_lab.statistics.comparison import ALPHA, Comparison
from crbc_lab.studies.estimators import CRBC
from crbc_lab.studies.learning.study import BOUNDS, Result

WIDE = 0.95
"""A rate works where its area is this share of the estimator's best."""
ABREAST = 8  # methods in a row of the figure


@dataclass(frozen=True, slots=True)
class Row:
    """A method in a setting: its result, and what it has beside CRBC, corrected for the family: all methods in all
    settings. Rows that bound the others are compared, and not counted."""

    result: Result
    beside: Comparison | None

    @property
    def counts(self) -> bool:
        """Whether it is one of the family."""
        return self.beside is not None and self.result.estimator not in BOUNDS

    @property
    def separated(self) -> bool:
        return self.counts and self.beside is not None and self.beside.separated


Table = Mapping[str, list[Row]]
"""The rows of each setting."""


def table(results: Sequence[Result]) -> Table:
    """All results beside CRBC's in their setting. Raises `ConfigError` with fewer than two seeds or instances.

    Those that bound the others are compared apart, since their trainings do not spread as those of methods do."""
    beside: dict[tuple[str, str], Comparison] = {}
    for setting in dict.fromkeys(result.setting for result in results):
        here = {result.estimator: outcomes(result) for result in results if result.setting == setting}
        for part in ({*here} - {*BOUNDS}, *({CRBC, bound} for bound in BOUNDS if bound in here)):
            if CRBC in part:
                compared = compare({name: of for name, of in here.items() if name in part}, CRBC)
                beside |= {(setting, one.name): one for one in compared}
    family = [place for place in beside if place[1] not in BOUNDS]
    for place, p in zip(family, holm([beside[place].p for place in family]), strict=True):
        one = beside[place]
        least = smallest_difference(one.error, one.freedom, ALPHA / len(family))
        beside[place] = replace(one, corrected=float(p), smallest=least)
    rows: dict[str, list[Row]] = {}
    for result in results:
        rows.setdefault(result.setting, []).append(Row(result, beside.get((result.setting, result.estimator))))
    return rows


def outcomes(result: Result) -> Outcomes:
    """The areas of every seed and instance, each instance a cluster of its own."""
    seeds, instances = result.values.shape
    seed, instance = np.divmod(np.arange(seeds * instances), instances)
    return Outcomes.of(seed, instance, instance, result.values.ravel())


def working(result: Result) -> float:
    """How wide the range of rates is that work: the quotient of the largest and the smallest whose area, and of all
    between them, is `WIDE` of the best."""
    areas = result.areas.mean(axis=1)
    good = areas >= WIDE * areas.max()
    low = high = int(areas.argmax())
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(good) and good[high + 1]:
        high += 1
    return result.rates[high] / result.rates[low]


HEADS = ("", "rate", "area", "end", "area minus CRBC's", "Holm's p")


def lines(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """The cells of a setting's table under `HEADS`, the largest area first; "*" where a method is separated."""
    for row in sorted(rows, key=lambda row: -row.result.area):
        result, one = row.result, row.beside
        d = None if one is None else one.difference
        yield (
            result.estimator,
            f"{result.rates[result.rate]:g}",
            f"{100 * result.area:.1f}",
            f"{100 * result.curve[-1].mean():.1f}",
            "" if d is None else d.percent("+.1f"),
            f"{one.corrected:.3f}{'*' * row.separated}" if one is not None and row.counts else "",
        )


def by_rate(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """The area of each method at each rate, and how wide the range is that works."""
    for row in rows:
        areas = (f"{100 * area:.1f}" for area in row.result.areas.mean(axis=1))
        yield (row.result.estimator, *areas, f"x{working(row.result):.3g}")


def draw(tables: Table, path: Path) -> None:
    """Effect sizes: in every setting, CRBC's area minus each method's, with its 95 % interval."""
    names = list(dict.fromkeys(row.result.estimator for rows in tables.values() for row in rows if row.beside))
    across, down = min(len(names), ABREAST), -(-len(names) // ABREAST)
    figure = Figure(figsize=(2.2 + 1.9 * across, down * (1.6 + 0.34 * len(tables))), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for ax in panels[len(names) :]:
        ax.remove()
    for ax, name in zip(panels, names, strict=False):
        for height, rows in enumerate(tables.values()):
            for row in (row for row in rows if row.result.estimator == name and row.beside is not None):
                assert row.beside is not None
                d = row.beside.difference
                colour = "#9a9a9a" if d.low <= 0.0 <= d.high else "#0b3c5d" if d.value < 0.0 else "#d55e00"
                ax.plot([-100 * d.low, -100 * d.high], [height, height], color=colour, linewidth=2)
                ax.plot([-100 * d.value], [height], "o", color=colour, markersize=5)
        ax.axvline(0.0, color="#444444", linewidth=0.8)
        ax.set_title(name, fontsize=10)
        ax.set_ylim(len(tables) - 0.5, -0.5)
        ax.grid(axis="x", color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right", "left"]].set_visible(False)
    figure.axes[0].set_yticks(range(len(tables)), list(tables), fontsize=9)
    figure.supxlabel("CRBC's area minus that of each method, in points; grey: the interval includes 0", fontsize=9)
    figure.savefig(path, dpi=120)
