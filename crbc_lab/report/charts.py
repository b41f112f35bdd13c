"""Charts as geometry: ticks and paths in SVG user units, y downwards. The template draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from anchors.columns import Floats
from crbc_rl.runs.lines import Record
from crbc_rl.runs.metrics import evaluated
from crbc_rl.runs.phases import blocks

T = TypeVar("T")

POINTS = 2_000
"""The most points of a curve, which is more than its pixels."""
PHASES = ("rollout", "train", "eval", "save", "other", "credit")


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One path and the CSS class it is drawn in."""

    path: str
    style: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart of `width` x `height`; its axes span `box` = (left, top, right, bottom).

    `hover` is JSON for the script: `at`, the x of every update, and `rows`, the tooltip there.
    """

    title: str
    width: float
    height: float
    box: tuple[float, float, float, float]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    layers: tuple[Layer, ...]
    hover: dict[str, Any]
    notes: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One quantity over updates: `x` and `y` of equal length, finite; `low` and `high` bound a band."""

    name: str
    x: Floats
    y: Floats
    style: str
    percent: bool = False
    dots: bool = False
    band: tuple[Floats, Floats] | None = None

    def thinned(self) -> Series:
        """At most `POINTS` of its points."""
        at = np.array(thin(range(len(self.x))))
        band = self.band and (self.band[0][at], self.band[1][at])
        return replace(self, x=self.x[at], y=self.y[at], band=band)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] of the data onto [start, end] of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def thin(items: Sequence[T]) -> Sequence[T]:
    """At most `POINTS` of the items: the first, the last and evenly between."""
    if len(items) <= POINTS:
        return items
    return [items[i * (len(items) - 1) // (POINTS - 1)] for i in range(POINTS)]


def column(records: Sequence[Record], name: str) -> tuple[Floats, Floats]:
    """The updates that have the metric `name`, and its finite values."""
    rows = [(r["update"], r[name]) for r in records if name in r]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) whose ends enclose [low, high]."""
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def update_ticks(low: float, high: float, count: int) -> list[float]:
    """Round whole numbers within [low, high]."""
    ticks = round_ticks(low, high, count) if high > low else [low]
    return [t for t in ticks if low <= t <= high and t == int(t)]


def number(value: float, percent: bool = False) -> str:
    """A number as text: three significant digits, or a percentage."""
    if percent:
        return f"{value:.1%}".replace(".0%", "%")
    return f"{value:.3g}".replace("e-0", "e-").replace("-", "−")


def line_chart(
    title: str,
    series: Sequence[Series],
    updates: int,
    size: tuple[float, float],
    ticks: int = 4,
    unit: str = "update",
) -> Chart | None:
    """Curves over updates 0 to `updates`, or over what else `unit` names; None where no series has a point."""
    series = [s.thinned() for s in series if len(s.x)]
    if not series:
        return None
    percent = series[0].percent
    low, high = _range(series)
    values = round_ticks(low, high, ticks)
    box = (46.0, 10.0, size[0] - 10.0, size[1] - 22.0)
    across = Scale(0, max(updates, 1), box[0], box[2])
    up = Scale(values[0], values[-1], box[3], box[1])
    layers = [layer for s in series for layer in _layers(s, across, up)]
    order = {"band": 0, "fourth": 0, "raw": 1, "smooth": 2}
    return Chart(
        title,
        *size,
        box,
        tuple(Tick(across(t), f"{t:,.0f}") for t in update_ticks(0, max(updates, 1), max(4, int(size[0] / 70)))),
        tuple(Tick(up(t), number(t, percent)) for t in values),
        tuple(sorted(layers, key=lambda layer: order.get(layer.style.split()[0], 3))),
        _hover(series, across, unit),
    )


def phase_chart(records: Sequence[Record], updates: int, size: tuple[float, float]) -> Chart | None:
    """Seconds per phase, stacked, one bar per update; None where nothing was timed.

    Updates with a test take much longer. They do not determine the scale, since they would flatten the others. Where a
    bar exceeds the scale, its total is written as text.
    """
    timed = thin([r for r in records if blocks(r)])
    if not timed:
        return None
    seconds = np.array([[spent.get(phase, 0.0) for phase in PHASES] for spent in map(blocks, timed)])
    tops = np.cumsum(seconds, axis=1)
    usual = [total for r, total in zip(timed, tops[:, -1], strict=True) if "test/success" not in r]
    values = round_ticks(0.0, max(max(usual, default=tops[:, -1].max()), 1e-3), 4)
    box = (46.0, 22.0, size[0] - 10.0, size[1] - 22.0)
    across, up = Scale(-0.7, updates + 0.7, box[0], box[2]), Scale(0, values[-1], box[3], box[1])
    half = 0.4 * (across(1) - across(0))
    paths: list[str] = []
    for phase in range(len(PHASES)):
        bottoms = tops[:, phase] - seconds[:, phase]
        bars = []
        for record, low, high in zip(timed, bottoms, tops[:, phase], strict=True):
            x, y0, y1 = across(record["update"]), up(min(low, values[-1])), up(min(high, values[-1]))
            bars.append(f"M{x - half:.1f} {y0:.1f}H{x + half:.1f}V{y1:.1f}H{x - half:.1f}Z" if y0 > y1 else "")
        paths.append("".join(bars))
    cut = [(r["update"], total) for r, total in zip(timed, tops[:, -1], strict=True) if total > values[-1]]
    hover = {
        "at": [round(across(r["update"]), 1) for r in timed],
        "rows": [
            [f"update {r['update']}", *([phase, _seconds(s)] for phase, s in zip(PHASES, row, strict=True) if s)]
            for r, row in zip(timed, seconds, strict=True)
        ],
    }
    return Chart(
        "Seconds per update",
        *size,
        box,
        tuple(Tick(across(t), number(t)) for t in update_ticks(0, updates, 9)),
        tuple(Tick(up(t), number(t)) for t in values),
        tuple(Layer(path, f"phase {phase}") for path, phase in zip(paths, PHASES, strict=True)),
        hover,
        tuple((across(update), box[1] - 6, f"{total:.0f} s") for update, total in cut),
    )


def phase_totals(records: Sequence[Record]) -> list[tuple[str, str, str, str]]:
    """(phase, total, share of all seconds, median over the updates that have it) of each timed phase."""
    totals = []
    spent = [blocks(record) for record in records]
    for phase in PHASES:
        seconds = np.array([some[phase] for some in spent if phase in some])
        if len(seconds):
            totals.append((phase, float(seconds.sum()), float(np.median(seconds))))
    whole = sum(total for _, total, _ in totals) or 1.0
    return [(phase, _seconds(total), _share(total / whole), _seconds(median)) for phase, total, median in totals]


def _share(value: float) -> str:
    return "less than 0.01%" if 0 < value < 0.0001 else f"{value:.2%}"


def intervals(records: Sequence[Record], width: float) -> dict[str, Any] | None:
    """Test success of the first and the newest tested policy: `ticks`, and `bars` over `width`; None without any."""
    tested = evaluated(records, "test")
    if not tested:
        return None
    chosen = [("before", tested[0])] if tested[0]["update"] == 0 else []
    chosen += [("after", tested[-1])] if tested[-1]["update"] else []
    values = round_ticks(0.0, max(max(r["test/high"] for _, r in chosen), 0.05), 6)
    while len(values) > 2 and values[-1] > 1:
        values.pop()
    along = Scale(0.0, values[-1], 12.0, width - 12.0)
    bars = [
        {
            "name": f"{name} training" if name == "before" else f"after update {r['update']}",
            "style": name,
            "low": along(r["test/low"]),
            "at": along(r["test/success"]),
            "high": along(r["test/high"]),
            "text": f"{100 * r['test/success']:.1f}",
            "detail": f"{100 * r['test/low']:.1f} to {100 * r['test/high']:.1f} %, {r['test/episodes']} tasks",
        }
        for name, r in chosen
    ]
    return {"ticks": [Tick(along(t), number(t, percent=True)) for t in values], "bars": bars}


def _range(series: Sequence[Series]) -> tuple[float, float]:
    """The range of the y axis: it includes 0 where the curves come near it, and is never empty."""
    bounds = [b for s in series for b in (s.y, *(s.band or ()))]
    low, high = min(float(b.min()) for b in bounds), max(float(b.max()) for b in bounds)
    if low >= 0.0 and (low < 0.6 * high or high - low <= 1e-9 * high):
        low = 0.0
    if high - low < 1e-9 * max(abs(high), 1e-3):
        high = low + (abs(low) if abs(low) > 1e-12 else 1.0)
    return low, high


def _layers(series: Series, across: Scale, up: Scale) -> list[Layer]:
    points = [(across(x), up(y)) for x, y in zip(series.x, series.y, strict=True)]
    layers = [Layer(_line(points), f"{series.style} line")]
    if series.band:
        edges = [[(across(x), up(y)) for x, y in zip(series.x, b, strict=True)] for b in series.band]
        layers.append(Layer(_line(edges[0] + edges[1][::-1]) + "Z", f"band {series.style}"))
    if series.dots or len(points) == 1:
        layers.append(Layer("".join(f"M{x:.1f} {y:.1f}h0" for x, y in points), f"{series.style} dots"))
    return layers


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _hover(series: Sequence[Series], across: Scale, unit: str) -> dict[str, Any]:
    said: dict[float, list[Any]] = {}
    for s in series:
        for i, (x, y) in enumerate(zip(s.x, s.y, strict=True)):
            text = number(y, s.percent)
            if s.band:
                text += f" ({number(s.band[0][i], s.percent)} to {number(s.band[1][i], s.percent)})"
            said.setdefault(float(x), []).append([s.name, text])
    updates = sorted(said)
    return {
        "at": [round(across(x), 1) for x in updates],
        "rows": [[f"{unit} {x:,.0f}", *said[x]] for x in updates],
    }


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"
