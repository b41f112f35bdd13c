"""The output of the credit accuracy study: tables for a terminal, and all numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anchors.columns import Floats
from crbc_envs.storage.files import replace_file
from crbc_lab.studies.credit_accuracy import Settings, WorldScores, difference, estimate
from crbc_lab.studies.credit_metrics import METRICS
from crbc_lab.studies.estimators import CRBC, ORACLE, PLUS
from crbc_lab.studies.worlds import World

SHOWN = (  # tables and their metrics
    ("Who is credited", ("rank", "sign", "zero", "leakage")),
    ("Where the policy is moved", ("cosine", "mean_cosine", "noise")),
    ("Repaired paths", ("bad", "repair", "repaired")),
)

PAIRED = ("rank", "sign", "cosine", "mean_cosine", "leakage")
"""The metrics in which estimators are compared, three a table."""


def explain(console: Console) -> None:
    """Print what each metric is."""
    for metric, meaning in METRICS.items():
        console.print(f"  [bold]{metric:12}[/]{meaning}", highlight=False, soft_wrap=True)


def print_world(results: Sequence[WorldScores], world: World, settings: Settings, console: Console) -> None:
    """Print one world's `results`: every metric, the differences from CRBC, and means by group size."""
    size = 8 if 8 in settings.group_sizes else max(settings.group_sizes)  # 8 as in the paper
    (result,) = (c for c in results if c.group_size == size)
    instances, behaviours = result.success.shape
    played = ", ".join(f"{success:.2f}" for success in result.success.mean(axis=0))
    console.print(
        f"\n[bold]{world.name}[/]: {world.description}\n{instances} instances x {behaviours} behaviours "
        f"({', '.join(result.behaviours)}; J {played}) x {settings.groups(size)} groups of {size}, "
        f"draws to {settings.draws}, seed {settings.seed}.\n{result.failed.mean():.0%} of the groups had no success; "
        "only mean_cosine and noise include them.",
        highlight=False,
    )
    for title, metrics in SHOWN:
        estimates = {metric: estimate(result, metric) for metric in metrics}
        if any(not np.isnan(middle).all() for middle, _ in estimates.values()):
            console.print(_table(f"{title}, G = {size}", estimates, result.estimators))
    if CRBC in result.estimators:
        for some in (PAIRED[:3], PAIRED[3:]):
            console.print(_differences(result, some))
    if len(results) > 1:
        for metric in ("rank", "cosine", "mean_cosine"):
            by_size = {f"G = {c.group_size}": estimate(c, metric) for c in results}
            console.print(_table(f"{metric} by group size", by_size, result.estimators))


def _table(title: str, estimates: dict[str, tuple[Floats, Floats]], estimators: Sequence[str]) -> Table:
    """One row per estimator. The last row bounds the half widths of each column's 95 % intervals."""
    table = _empty(title, list(estimates))
    for i, name in enumerate(estimators):
        row = (f"{middle[i]:.3f}" if np.isfinite(middle[i]) else "-" for middle, _ in estimates.values())
        table.add_row(name, *row, style="bold" if name in (CRBC, PLUS) else "", end_section=name == ORACLE)
    within = (f"±{np.nanmax(width):.3f}" if np.isfinite(width).any() else "-" for _, width in estimates.values())
    table.add_row("95 % within", *within, style="dim")
    return table


def _differences(result: WorldScores, metrics: Sequence[str]) -> Table:
    """Each estimator minus CRBC; bold where the interval does not include zero."""
    table = _empty(f"Minus {CRBC}, paired by instance, G = {result.group_size}, ± 95 %", metrics)
    differences = [difference(result, metric, CRBC) for metric in metrics]
    for i, name in enumerate(result.estimators):
        if name != CRBC:
            table.add_row(name, *(_signed(middle, width, i) for middle, width in differences))
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


def write_json(results: Sequence[WorldScores], worlds: Sequence[World], settings: Settings, path: Path) -> None:
    """All numbers by world and group size, as [mean, 95 % half width]; null where there is none."""
    data = {
        "settings": asdict(settings),
        "metrics": METRICS,
        "worlds": {
            world.name: {
                "description": world.description,
                "by_group_size": {str(c.group_size): _numbers(c) for c in results if c.world == world.name},
            }
            for world in worlds
        },
    }
    replace_file(path, (json.dumps(data, indent=1) + "\n").encode())


def _numbers(result: WorldScores) -> dict[str, Any]:
    numbers = {
        "behaviours": dict(zip(result.behaviours, map(_plain, result.success.mean(axis=0)), strict=True)),
        "groups_without_success": _plain(result.failed.mean()),
        "scores": _by_name(result, {metric: estimate(result, metric) for metric in METRICS}),
    }
    if CRBC in result.estimators:
        numbers["minus_crbc"] = _by_name(result, {metric: difference(result, metric, CRBC) for metric in METRICS})
    return numbers


def _by_name(result: WorldScores, estimates: dict[str, tuple[Floats, Floats]]) -> dict[str, Any]:
    return {
        name: {metric: [_plain(middle[i]), _plain(width[i])] for metric, (middle, width) in estimates.items()}
        for i, name in enumerate(result.estimators)
    }


def _plain(value: Any) -> float | None:
    """A number for JSON, None instead of nan."""
    return round(float(value), 6) if np.isfinite(value) else None
