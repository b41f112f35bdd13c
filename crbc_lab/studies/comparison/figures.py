"""The figure of a comparison: how the reward of training, validation success and its return grew, and what the last
policies won on the test tasks. And the figure of evidence coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from crbc_lab.statistics import band
from crbc_lab.statistics.curves import Curve, smooth, smoothing
from crbc_lab.studies.comparison.kept import Kept
from crbc_lab.studies.comparison.markdown import Row

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
SETTINGS_COLOURS = ("#0b3c5d", "#d55e00", "#7f7f7f", "#009e73", "#e69f00", "#cc79a7")
"""The reference first."""
SHADES = ("#c6dbef", "#6baed6", "#2171b5", "#08306b")
"""Of depths, the deepest darkest."""
RETURN = "reward_by_step"
"""The paper's validation score."""
MOST_CURVES = 6
"""More would hide each other: then the reference and the best others are drawn."""


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write the picture of a table's rows, best first."""
    ordered = sorted(rows, key=lambda row: row.success.value)
    colours = dict(
        zip([row.name for row in sorted(rows, key=lambda row: row.beside is not None)], cycle(COLOURS), strict=False)
    )
    shown = [row for row in ordered if row.beside is None] + [row for row in ordered[::-1] if row.beside is not None]
    shown = shown[:MOST_CURVES]
    returned = all(RETURN in kept.validation for row in shown for kept in row.kept)
    figure = Figure(figsize=(18 if returned else 14, 1.9 + 0.33 * max(6, len(rows))), layout="constrained")
    rewards, curves, *returns, dots = figure.subplots(1, 4 if returned else 3)
    for row in shown:
        _rewards(rewards, row, colours[row.name])
        for ax, name in zip((curves, *returns), ("success", RETURN), strict=False):
            points = [(kept.validation["update"], kept.validation[name]) for kept in row.kept]
            _curve(ax, points, row.label, colours[row.name])
    rewards.set(ylabel="mean return of training rollouts, smoothed")
    curves.set(ylabel="success on validation tasks")
    for ax in returns:
        ax.set(ylabel="mean return by step on validation tasks")
    curves.legend(fontsize=8, frameon=False, loc="upper left")
    for height, row in enumerate(ordered):
        one, colour = row.success, colours[row.name]
        dots.plot([one.low, one.high], [height, height], color=colour, linewidth=2)
        dots.plot([one.value], [height], "o", color=colour, markersize=6)
        dots.plot([kept.end["success"] for kept in row.kept], [height] * len(row.kept), "|", color=colour, alpha=0.6)
    dots.axvline(float(np.mean([row.start for row in rows])), color="#c0392b", linestyle=":", linewidth=1.2)
    dots.set_yticks(range(len(ordered)), [row.label for row in ordered], fontsize=9)
    dots.set(xlabel="success on test tasks: mean, 95 % interval and each seed;\ndotted: before training")
    dots.xaxis.label.set_fontsize(8)
    _in_percent(dots.xaxis)
    _in_percent(curves.yaxis)
    for ax in (rewards, curves, *returns):
        ax.set(xlabel="update")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _save(figure, (rewards, curves, *returns, dots), title, path)


def draw_settings(settings: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write one panel for each setting of a study, by its title: validation success, each seed a thin line, the mean of
    a method's seeds a thick one. Above it stands what each method came to on the test tasks."""
    figure = Figure(figsize=(4.5 * len(settings), 4.2), layout="constrained")
    panels = figure.subplots(1, len(settings), squeeze=False)[0]
    for ax, (title, rows) in zip(panels, settings.items(), strict=True):
        ordered = sorted(rows, key=lambda row: row.beside is not None)
        for height, (row, colour) in enumerate(zip(ordered, cycle(SETTINGS_COLOURS), strict=False)):
            for kept in row.kept:
                ax.plot(kept.validation["update"], kept.validation["success"], color=colour, linewidth=0.9, alpha=0.45)
            mean = np.mean([kept.validation["success"] for kept in row.kept], axis=0)
            ax.plot(row.kept[0].validation["update"], mean, color=colour, linewidth=2.6, label=row.label)
            change = f"{100 * row.start:.1f} → {100 * row.success.value:.1f} %"
            caption = f"{row.label}: test {change}, {len(row.kept)} seeds"
            ax.text(0.5, 1.02 + 0.055 * height, caption, transform=ax.transAxes, color=colour, ha="center", fontsize=9)
        ax.set_title(title, fontsize=12, fontweight="bold", pad=8 + 14 * len(ordered))
        ax.set(xlabel="update", xlim=(0, None), ylim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        _in_percent(ax.yaxis)
    panels[0].set_ylabel("success on validation tasks")
    panels[0].legend(fontsize=9, frameon=False, loc="lower right")
    _save(figure, panels, "", path)


def draw_coverage(kept: Sequence[Kept], title: str, path: Path) -> None:
    """Write the paper's figure of coverage, means over the seeds: the share of the visits by the rollouts that reach
    them at each depth; and the same visits at the first depth and at the last."""
    depths, share = kept[0].coverage["depths"], np.mean([one.coverage["share"] for one in kept], axis=0)
    paired = 100 * np.mean([one.coverage["paired"] for one in kept], axis=0)[1:, 1:]
    size = len(paired)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    bars, matrix = figure.subplots(1, 2, width_ratios=(3, 2))
    width = 0.8 / len(depths)
    for number, (depth, row) in enumerate(zip(depths, share, strict=True)):
        at = np.arange(1, size + 1) + (number - (len(depths) - 1) / 2) * width
        bars.bar(at, row[1:], width, color=SHADES[number], label="full closure" if depth == "full" else f"K = {depth}")
    bars.set(xlabel="rollouts whose evidence reaches a visit", ylabel="share of the eligible visits")
    bars.set_xticks(range(1, size + 1))
    _in_percent(bars.yaxis)
    bars.legend(fontsize=8, frameon=False, loc="upper left")
    matrix.imshow(paired, origin="lower", cmap="Blues", extent=(0.5, size + 0.5, 0.5, size + 0.5), aspect="auto")
    for (row, column), value in np.ndenumerate(paired):
        if value >= 0.05:
            colour = "white" if value > paired.max() / 2 else "black"
            matrix.text(column + 1, row + 1, f"{value:.1f}", ha="center", va="center", fontsize=7, color=colour)
    matrix.set(xlabel="under full closure", ylabel="at K = 0", title="% of the eligible visits")
    matrix.title.set_fontsize(9)
    _save(figure, (bars,), title, path)


def _save(figure: Figure, axes: Sequence[Axes], title: str, path: Path) -> None:
    """Write the picture; `axes` get a grid and no frame."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
    if title:
        figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _in_percent(axis: Axis) -> None:
    """Label whole percents. Matplotlib's steps of 2.5 would be rounded."""
    axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10]))
    axis.set_major_formatter(PercentFormatter(1, decimals=0))


def _rewards(ax: Axes, row: Row, colour: str) -> None:
    """The training rewards of each seed, smoothed as in the paper, and their mean."""
    weight = smoothing(max(len(kept.curve["reward"]) for kept in row.kept))
    points = [
        (range(1, 1 + len(reward)), smooth(np.array(reward, dtype=float), weight))
        for reward in (kept.curve["reward"] for kept in row.kept)
    ]
    _curve(ax, points, row.label, colour)


def _curve(ax: Axes, points: Sequence[Curve], label: str, colour: str) -> None:
    """The mean over seeds, with its band where there are three; that of two is wider than the axis."""
    interval = band(points)
    if len(points) > 2:
        ax.fill_between(interval.updates, interval.low, interval.high, color=colour, alpha=0.12, linewidth=0)
    ax.plot(interval.updates, interval.centre, color=colour, linewidth=2, label=label)
