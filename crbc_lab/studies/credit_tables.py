"""The output of the credit accuracy study: tables for a terminal, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from crbc_lab.studies.credit_accuracy import Cell, Settings, difference, estimate, mean
from crbc_lab.studies.credit_metrics import BY_GROUP, METRICS
from crbc_lab.studies.estimators import CRBC, ORACLE, PLUS
from crbc_lab.studies.worlds import World

Floats = NDArray[np.float64]

SHOWN = (
    ("Who is credited", ("rank", "kendall", "sign", "zero", "leakage")),
    ("Where the policy is moved", ("cosine", "mean_cosine", "noise", "gain_small", "gain")),
    ("Repaired paths", ("bad", "repair", "repaired")),
)
"""The metrics of each table."""

PAIRED = ("rank", "sign", "cosine", "mean_cosine", "leakage", "gain_small")
"""The metrics in which estimators are compared, three a table."""


def main_size(settings: Settings) -> int:
    """The group size of the tables: 8 as in the paper, or the largest sampled."""
    return 8 if 8 in settings.group_sizes else max(settings.group_sizes)


def explain(console: Console) -> None:
    """Print what each metric is."""
    for metric, meaning in METRICS.items():
        console.print(f"  [bold]{metric:12}[/]{meaning}", highlight=False, soft_wrap=True)


def show(cells: Sequence[Cell], world: World, settings: Settings, console: Console) -> None:
    """Print one world's `cells`: every metric, the differences from CRBC, and means by group size."""
    size = main_size(settings)
    (cell,) = (c for c in cells if c.group_size == size)
    instances, behaviours = cell.success.shape
    console.print(
        f"\n[bold]{world.name}[/]: {world.description}\n{instances} instances x {behaviours} behaviours "
        f"({', '.join(cell.behaviours)}; J {_several(cell.success)}) x {settings.groups(size)} groups of {size}, "
        f"draws to {settings.draws}, seed {settings.seed}.\n{cell.failed.mean():.0%} of the groups had no success; "
        "only mean_cosine and noise include them.",
        highlight=False,
    )
    for title, metrics in SHOWN:
        found = {metric: estimate(cell, metric) for metric in metrics}
        if any(not np.isnan(middle).all() for middle, _ in found.values()):
            console.print(_table(f"{title}, G = {size}", found, cell.estimators))
    if CRBC in cell.estimators:
        for metrics in (PAIRED[:3], PAIRED[3:]):
            console.print(_differences(cell, metrics))
    if len(cells) > 1:
        for metric in ("rank", "cosine", "mean_cosine", "gain_small"):
            by_size = {f"G = {c.group_size}": estimate(c, metric) for c in cells}
            console.print(_table(f"{metric} by group size", by_size, cell.estimators))


def show_plus(cells: Sequence[Cell], settings: Settings, console: Console) -> None:
    """Print what CRBC+ gains over CRBC in every world."""
    here = [c for c in cells if c.group_size == main_size(settings) and {CRBC, PLUS} <= set(c.estimators)]
    for metrics in (PAIRED[:3], PAIRED[3:]) if here else ():
        table = _empty(f"{PLUS} minus {CRBC}, G = {main_size(settings)}, ± 95 %", metrics)
        for cell in here:
            place = cell.estimators.index(PLUS)
            table.add_row(cell.world, *(_signed(*difference(cell, metric, CRBC), place) for metric in metrics))
        console.print(table)


def _several(success: Floats) -> str:
    """The mean J of each behaviour."""
    return ", ".join(f"{value:.2f}" for value in success.mean(axis=0))


def _table(title: str, found: dict[str, tuple[Floats, Floats]], estimators: Sequence[str]) -> Table:
    """One row per estimator. The last row bounds the half widths of each column's 95 % intervals."""
    table = _empty(title, list(found))
    for i, name in enumerate(estimators):
        row = (f"{middle[i]:.3f}" if np.isfinite(middle[i]) else "-" for middle, _ in found.values())
        table.add_row(name, *row, style="bold" if name in (CRBC, PLUS) else "", end_section=name == ORACLE)
    table.add_row("95 % within", *(_largest(width) for _, width in found.values()), style="dim")
    return table


def _largest(width: Floats) -> str:
    return f"±{np.nanmax(width):.3f}" if np.isfinite(width).any() else "-"


def _differences(cell: Cell, metrics: Sequence[str]) -> Table:
    """Each estimator minus CRBC; bold where the interval does not include zero."""
    table = _empty(f"Minus {CRBC}, paired by instance, G = {cell.group_size}, ± 95 %", metrics)
    found = [difference(cell, metric, CRBC) for metric in metrics]
    for i, name in enumerate(cell.estimators):
        if name != CRBC:
            table.add_row(name, *(_signed(middle, width, i) for middle, width in found))
    return table


def _signed(middle: Floats, width: Floats, i: int) -> str:
    if not np.isfinite(middle[i]):
        return "-"
    text = f"{middle[i]:+.3f} ± {width[i]:.3f}"
    return f"[bold]{text}[/]" if abs(middle[i]) > width[i] else text


def _empty(title: str, headings: Sequence[str]) -> Table:
    table = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, padding=0
    )
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading.replace("_", "\n"), justify="right", no_wrap=True)
    return table


def write_json(cells: Sequence[Cell], worlds: Sequence[World], settings: Settings, path: Path) -> None:
    """All figures by world and group size, as [mean, 95 % half width]; null where there is none."""
    data = {
        "settings": asdict(settings),
        "metrics": METRICS,
        "worlds": {
            world.name: {
                "description": world.description,
                "by_group_size": {str(c.group_size): _figures(c) for c in cells if c.world == world.name},
            }
            for world in worlds
        },
    }
    path.write_text(json.dumps(data, indent=1) + "\n")


def _figures(cell: Cell) -> dict[str, Any]:
    found = {
        "behaviours": dict(zip(cell.behaviours, map(_plain, cell.success.mean(axis=0)), strict=True)),
        "groups_without_success": _plain(cell.failed.mean()),
        "scores": _by_name(cell, {metric: estimate(cell, metric) for metric in METRICS}),
        "by_behaviour": {
            behaviour: {
                name: {metric: _plain(mean(cell.scores[metric][:, b, e], axis=0)) for metric in BY_GROUP}
                for e, name in enumerate(cell.estimators)
            }
            for b, behaviour in enumerate(cell.behaviours)
        },
    }
    if CRBC in cell.estimators:
        found["minus_crbc"] = _by_name(cell, {metric: difference(cell, metric, CRBC) for metric in METRICS})
    return found


def _by_name(cell: Cell, found: dict[str, tuple[Floats, Floats]]) -> dict[str, dict[str, list[float | None]]]:
    return {
        name: {metric: [_plain(middle[i]), _plain(width[i])] for metric, (middle, width) in found.items()}
        for i, name in enumerate(cell.estimators)
    }


def _plain(value: Any) -> float | None:
    """A number for JSON, None instead of nan."""
    return round(float(value), 6) if np.isfinite(value) else None
