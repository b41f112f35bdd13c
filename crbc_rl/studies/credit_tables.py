"""The output of the credit accuracy study: tables for a terminal, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from crbc_rl.studies.credit_accuracy import CLOSURE, METRICS, ORACLE, Cell, Settings, estimators, lead, pool

Floats = NDArray[np.float64]

PAIRED = ("rank", "gain_small", "gain")
"""The metrics in which CRBC is compared with each other estimator, paired by room."""


Figures = dict[str, dict[str, tuple[float | None, float | None]]]
"""By estimator and metric: mean and standard error."""


def names_of(settings: Settings) -> list[str]:
    """The names of the estimators in the order of every array of a `Cell`; the truth is last."""
    return [*(estimator.name for estimator in estimators(settings.depths, settings.beta)), ORACLE]


def in_probability(settings: Settings) -> list[bool]:
    """Which of `names_of` give credit in units of success probability."""
    return [*(estimator.probability for estimator in estimators(settings.depths, settings.beta)), True]


def main_size(settings: Settings) -> int:
    """The group size of the tables by behaviour: 8 as in the paper, or the largest sampled."""
    return 8 if 8 in settings.group_sizes else max(settings.group_sizes)


def of_size(cells: Sequence[Cell], size: int) -> list[Cell]:
    return [cell for cell in cells if cell.group_size == size]


def show(cells: Sequence[Cell], settings: Settings, console: Console) -> None:
    """Print every metric, CRBC's lead, and ranks and gains by behaviour and by group size."""
    size = main_size(settings)
    here = of_size(cells, size)
    failed = float(np.mean([cell.failed for cell in here]))
    console.print(
        f"[bold]Step credit against the exact truth[/], {settings.rooms} rooms x {settings.groups} groups of {size} x "
        f"{len(here)} behaviours.\n{failed:.0%} of the groups had no success and are left out; s.e. is over rooms.",
        highlight=False,
    )
    for metric, meaning in METRICS.items():
        console.print(f"  [bold]{metric:12}[/]{meaning}", highlight=False, soft_wrap=True)

    pooled = pool(here)
    columns = [(metric, pooled[metric]) for metric in METRICS]
    console.print(_table(f"All metrics, G = {size}, mean over behaviours", columns, settings))
    _show_lead(here, settings, console)
    _show_coverage(cells, settings, console)
    for metric in PAIRED:
        columns = [(f"{c.behaviour}\nJ {c.success.mean():.2f}", pool([c])[metric]) for c in here]
        console.print(_table(f"{metric} by behaviour and its true success J, G = {size}", columns, settings))
    for metric in PAIRED:
        columns = [(f"G = {g}", pool(of_size(cells, g))[metric]) for g in settings.group_sizes]
        console.print(_table(f"{metric} by group size, mean over behaviours", columns, settings))


def _show_lead(cells: Sequence[Cell], settings: Settings, console: Console) -> None:
    """How far CRBC is ahead of each other estimator, paired by room."""
    reference = names_of(settings).index(CLOSURE)
    ahead = [lead(cells, metric, reference) for metric in PAIRED]
    table = _empty("crbc minus the other, paired by room, ± s.e.", PAIRED)
    for i, name in enumerate(names_of(settings)):
        if i != reference:
            table.add_row(name, *(f"{mean[i]:+.3f} ± {error[i]:.3f}" for mean, error in ahead))
    console.print(table)


def _show_coverage(cells: Sequence[Cell], settings: Settings, console: Console) -> None:
    """The share of eligible visits that all G rollouts reach, mean over behaviours."""
    depths = [*(f"K = {depth}" for depth in settings.depths), "closure"]
    table = _empty("Evidence coverage: eligible visits that all G rollouts reach", depths)
    for size in settings.group_sizes:
        shares = np.mean([cell.coverage for cell in of_size(cells, size)], axis=0)
        table.add_row(f"G = {size}", *(f"{share:.1%}" for share in shares))
    console.print(table)


def _table(title: str, columns: Sequence[tuple[str, tuple[Floats, Floats]]], settings: Settings) -> Table:
    """One row per estimator; the last row bounds the standard errors of each column."""
    table = _empty(title, [heading for heading, _ in columns])
    plain = in_probability(settings)
    for i, name in enumerate(names_of(settings)):
        row = ["-" if head == "rmse" and not plain[i] else f"{mean[i]:.3f}" for head, (mean, _) in columns]
        table.add_row(name, *row, style="bold" if name == CLOSURE else "", end_section=name == ORACLE)
    comparable = np.array(plain)
    errors = [error[comparable] if head == "rmse" else error for head, (_, error) in columns]
    table.add_row("s.e. up to", *(f"{float(np.nanmax(error)):.3f}" for error in errors), style="dim")
    return table


def _empty(title: str, headings: Sequence[str]) -> Table:
    table = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, padding=0
    )
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def write_json(cells: Sequence[Cell], settings: Settings, path: Path) -> None:
    """All figures as [mean, standard error], by cell and pooled over behaviours for each group size."""
    data = {
        "settings": asdict(settings),
        "metrics": METRICS,
        "in_probability": dict(zip(names_of(settings), in_probability(settings), strict=True)),
        "cells": [
            {
                "behaviour": cell.behaviour,
                "group_size": cell.group_size,
                "success": float(cell.success.mean()),
                "groups_without_success": cell.failed,
                "full_access": cell.coverage.tolist(),
                **_figures([cell], names_of(settings)),
            }
            for cell in cells
        ],
        "by_group_size": {
            str(size): _figures(of_size(cells, size), names_of(settings)) for size in settings.group_sizes
        },
    }
    path.write_text(json.dumps(data, indent=1) + "\n")


def _figures(cells: Sequence[Cell], names: Sequence[str]) -> dict[str, Figures]:
    """Scores, and CRBC's lead in them, by estimator and metric."""
    reference = names.index(CLOSURE)
    found = {"scores": pool(cells), "crbc_ahead": {metric: lead(cells, metric, reference) for metric in PAIRED}}
    return {
        key: {
            name: {metric: (_plain(mean[i]), _plain(error[i])) for metric, (mean, error) in table.items()}
            for i, name in enumerate(names)
        }
        for key, table in found.items()
    }


def _plain(value: float) -> float | None:
    """A number for JSON, None instead of nan."""
    return round(float(value), 6) if np.isfinite(value) else None
