"""The figure of a comparison: how validation success grew, and what the last policies won on the test tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from crbc_rl.studies.comparison.tables import SEED, Row
from crbc_rl.studies.statistics import band

COLOURS = (
    "#0b3c5d",
    "#d55e00",
    "#009e73",
    "#7f7f7f",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8b4513",
    "#6a3d9a",
    "#b2182b",
    "#4d9221",
    "#35978f",
    "#bf812d",
)
"""One for each row, the reference first. With a name at each row's dot, nobody needs to tell them apart by colour."""
MOST_CURVES = 6
"""More would hide each other: then the reference and the best others are drawn."""


def draw(found: Sequence[Row], title: str, path: Path) -> None:
    """Write the picture of a table's rows, best first."""
    ordered = sorted(found, key=lambda row: row.success.value)
    colours = dict(
        zip([row.name for row in sorted(found, key=lambda row: row.beside is not None)], COLOURS, strict=False)
    )
    figure = Figure(figsize=(11, 1.9 + 0.33 * max(6, len(found))), layout="constrained")
    curves, dots = figure.subplots(1, 2)
    shown = [row for row in ordered if row.beside is None] + [row for row in ordered[::-1] if row.beside is not None]
    for row in shown[:MOST_CURVES]:
        _curve(curves, row, colours[row.name])
    curves.set(xlabel="update", ylabel="success on validation tasks", title=title)
    curves.legend(fontsize=8, frameon=False, loc="upper left")
    for height, row in enumerate(ordered):
        one, colour = row.success, colours[row.name]
        dots.plot([one.low, one.high], [height, height], color=colour, linewidth=2)
        dots.plot([one.value], [height], "o", color=colour, markersize=6)
        dots.plot([kept.end["success"] for kept in row.kept], [height] * len(row.kept), "|", color=colour, alpha=0.6)
    dots.axvline(float(np.mean([row.start for row in found])), color="#c0392b", linestyle=":", linewidth=1.2)
    dots.set_yticks(range(len(ordered)), [row.label for row in ordered], fontsize=9)
    dots.set(xlabel="success on test tasks: mean, 95 % interval, each seed; dotted: before training")
    dots.xaxis.label.set_fontsize(8)
    dots.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    curves.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for ax in (curves, dots):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _curve(ax: Axes, row: Row, colour: str) -> None:
    points = [(kept.validation["update"], kept.validation["success"]) for kept in row.kept]
    found = band(points, np.random.default_rng(SEED))
    ax.fill_between(found.updates, found.low.clip(0), found.high.clip(0, 1), color=colour, alpha=0.12, linewidth=0)
    ax.plot(found.updates, found.centre, color=colour, linewidth=2, label=row.label)
