"""The credit accuracy study as one figure: a panel per metric, a row per world, a mark per estimator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crbc_lab.studies.credit_accuracy import Settings, WorldScores, estimate
from crbc_lab.studies.credit_tables import main_size
from crbc_lab.studies.estimators import CRBC, ORACLE, PLUS

SHOWN = {
    "rank": "rank correlation with the true credit",
    "cosine": "cosine of a group's gradient",
    "mean_cosine": "cosine of the mean gradient",
    "leakage": "|credit| on steps that do not matter",
}
"""The metrics of the four panels."""

STYLES = {
    CRBC: ("#5796c4", "o"),
    PLUS: ("#0b3c5d", "D"),
    "grpo": ("#7f7f7f", "x"),
    "gigpo": ("#d55e00", "s"),
    "hgpo": ("#e69f00", "v"),
    "graphgpo": ("#009e73", "^"),
    "g2po": ("#cc79a7", "P"),
    "rtmc": ("#a0522d", "X"),
    ORACLE: ("#222222", "|"),
}
"""Colours that colour-blind readers can distinguish; markers differ too."""

ROW = 0.62
"""Inches per world."""


def draw(results: Sequence[WorldScores], settings: Settings, path: Path) -> None:
    """Advantages as they are trained on, at one group size; and by group size, mean over worlds, if there are more.

    Bars are 95 % intervals over instances.
    """
    size = main_size(settings)
    here = [result for result in results if result.group_size == size]
    several = len(settings.group_sizes) > 1
    height = 2.2 + ROW * len(here)
    figure = Figure(figsize=(13.5, height + 3.6 * several), layout="constrained")
    rows = figure.subplots(
        1 + several, len(SHOWN), squeeze=False, height_ratios=[height, 3.6][: 1 + several], sharey="row"
    )
    for ax, (metric, title) in zip(rows[0], SHOWN.items(), strict=True):
        _worlds(ax, here, metric)
        ax.set_title(title, fontsize=10.5, fontweight="bold")
    rows[0, 0].set_yticks(range(len(here)), [result.world for result in here])
    rows[0, 0].set_ylim(len(here) - 0.5, -0.5)
    if several:
        for ax, metric in zip(rows[1], SHOWN, strict=True):
            _sizes(ax, results, settings, metric)
        rows[1, 0].set_ylabel("mean over worlds")
    for ax in rows.flat:
        ax.grid(color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Advantages against the exact truth, G = {size}", fontsize=13)
    handles, labels = rows[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES), fontsize=9.5, frameon=False)
    figure.savefig(path, dpi=110)


def _worlds(ax: Axes, results: Sequence[WorldScores], metric: str) -> None:
    estimates = [estimate(result, metric) for result in results]
    names = [name for name in STYLES if all(name in result.estimators for result in results)]
    for k, name in enumerate(names):
        colour, marker = STYLES[name]
        at = [result.estimators.index(name) for result in results]
        middle = [means[i] for (means, _), i in zip(estimates, at, strict=True)]
        width = [widths[i] for (_, widths), i in zip(estimates, at, strict=True)]
        rows = np.arange(len(results)) + 0.7 * ((k + 0.5) / len(names) - 0.5)
        ax.errorbar(middle, rows, xerr=width, color=colour, marker=marker, linestyle="none", markersize=5, label=name)


def _sizes(ax: Axes, results: Sequence[WorldScores], settings: Settings, metric: str) -> None:
    sizes = sorted(settings.group_sizes)
    for name, (colour, marker) in STYLES.items():
        points = [
            [
                estimate(result, metric)[0][result.estimators.index(name)]
                for result in results
                if result.group_size == size
            ]
            for size in sizes
            if all(name in result.estimators for result in results)
        ]
        if points:
            ax.plot(sizes, np.nanmean(points, axis=1), color=colour, marker=marker, markersize=5)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xlabel("rollouts per group, G")
