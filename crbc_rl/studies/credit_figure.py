"""The credit accuracy study as one figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from crbc_rl.studies.credit_accuracy import CLOSURE, NORMALISED, ORACLE, Cell, Settings, lead, pool
from crbc_rl.studies.credit_tables import main_size, names_of, of_size

CLOSED = "#0b3c5d"
DEPTHS = ("#b9d6ea", "#86b6d8", "#5796c4", "#3577ab", "#1f5a8a")
"""The finite-depth family from light to dark with increasing depth."""
OTHERS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7f7f7f", "#56b4e9", "#a0522d")
"""Okabe and Ito's colours, which colour-blind readers can distinguish; markers differ too."""
MARKERS = "sD^vPX*"

Floats = NDArray[np.float64]
Style = dict[str, Any]


def draw(cells: Sequence[Cell], settings: Settings, path: Path) -> None:
    """Rank correlation by the behaviour's success (the family, then the other methods) and by group
    size, and the gain of each estimator's step. Bars are standard errors over rooms."""
    names = names_of(settings)
    size = main_size(settings)
    here = sorted(of_size(cells, size), key=lambda cell: cell.success.mean())
    labels = _merge_equals(cells, names)
    styles = _styles(labels)
    family = [n for n in labels if n.startswith(f"{CLOSURE} K=")] + [CLOSURE]
    others = _better_modes([n for n in labels if not n.startswith(CLOSURE) and n != ORACLE], here, names)

    figure = Figure(figsize=(11.5, 9.4), layout="constrained")
    axes = figure.subplots(2, 2)
    _behaviours(axes[0, 0], here, family, labels, styles, names)
    axes[0, 0].set_title(f"The depth family, G = {size}")
    _behaviours(axes[0, 1], here, [CLOSURE, *others], labels, styles, names)
    axes[0, 1].set_title(f"CRBC and the other estimators, G = {size}")
    ax = axes[1, 0]
    points = [pool(of_size(cells, g))["rank"] for g in settings.group_sizes]
    for name in (*family, *others):
        ax.errorbar(settings.group_sizes, *_marks(points, names.index(name)), **styles[name])
    ax.set_xscale("log", base=2)
    ax.set_xticks(settings.group_sizes, [str(g) for g in settings.group_sizes])
    ax.set_xlabel("rollouts per group, G (marks as above)")
    ax.set_title("By group size, mean over behaviours")
    _gains(axes[1, 1], here, names, labels, styles)
    axes[1, 1].set_title(f"Success gained by one step of equal size, G = {size}")
    for ax in axes.flat[:3]:
        ax.set_ylabel("rank correlation with the truth")
        ax.set_ylim(min(0.0, ax.get_ylim()[0]), 1.0)
    for ax in axes.flat:
        ax.title.set(fontsize=11, fontweight="bold")
        ax.grid(color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Step credit against the exact truth on {settings.rooms} one-box Sokoban rooms", fontsize=13)
    handles = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, fontsize=9.5, frameon=False)
    figure.savefig(path, dpi=130)


def _marks(points: Sequence[tuple[Floats, Floats]], i: int) -> tuple[list[float], list[float]]:
    """One estimator's means and standard errors along an axis."""
    return [float(mean[i]) for mean, _ in points], [float(error[i]) for _, error in points]


def _behaviours(
    ax: Axes,
    cells: Sequence[Cell],
    shown: Sequence[str],
    labels: dict[str, str],
    styles: dict[str, Style],
    names: Sequence[str],
) -> None:
    """Rank correlation against the behaviour's success, one line for each kind of behaviour."""
    for kind, face in (("mix", None), ("soft", "white")):
        chosen = [cell for cell in cells if cell.behaviour.startswith(kind)]
        points = [pool([cell])["rank"] for cell in chosen]
        for name in shown:
            style = {**styles[name], **({} if face is None else {"markerfacecolor": face})}
            label = labels[name] if kind == "mix" else None
            ax.errorbar([c.success.mean() for c in chosen], *_marks(points, names.index(name)), label=label, **style)
    ax.set_xlabel("true success rate of the behaviour (filled: mixtures, hollow: soft)")
    ax.set_xlim(0.0, 1.0)


def _gains(
    ax: Axes, cells: Sequence[Cell], names: Sequence[str], labels: dict[str, str], styles: dict[str, Style]
) -> None:
    """Two dots per estimator, best at the top; steps along the truth itself are the dashed lines."""
    pooled = pool(cells)
    shown = sorted((n for n in labels if n in styles), key=lambda n: float(pooled["gain"][0][names.index(n)]))
    for metric, face in (("gain", None), ("gain_small", "white")):
        mean, _ = pooled[metric]
        _, error = lead(cells, metric, names.index(CLOSURE))
        for row, name in enumerate(shown):
            i = names.index(name)
            style = {**styles[name], "linestyle": "none", **({} if face is None else {"markerfacecolor": face})}
            ax.errorbar(mean[i], row, xerr=error[i], **style)
        best = float(mean[names.index(ORACLE)])
        ax.axvline(best, color="#444444", linestyle="--", linewidth=1)
        ax.text(best, -0.9, "truth ", ha="right", va="center", fontsize=9, color="#444444")
    ax.axvline(0.0, color="#444444", linewidth=0.8)
    ax.set_ylim(-1.4, len(shown) - 0.5)
    ax.set_yticks(range(len(shown)), [labels[name] for name in shown], fontsize=9)
    ax.set_xlabel(
        "change of success probability (filled: large step, hollow: small)\nbars: s.e. of the difference from CRBC"
    )


def _merge_equals(cells: Sequence[Cell], names: Sequence[str]) -> dict[str, str]:
    """The estimators shown, and their labels; those with equal ranks and gains share one."""
    labels: dict[str, str] = {}
    for i, name in enumerate(names):
        twin = next((kept for kept in labels if _equal(cells, names.index(kept), i)), None)
        if name == NORMALISED:
            continue  # CRBC's credit on another scale, which is in the tables
        if twin is None:
            labels[name] = f"{CLOSURE} closure" if name == CLOSURE else name
        else:
            labels[twin] += f", {name}"
    return labels


def _better_modes(methods: Sequence[str], cells: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """The better ranking one of a method's two modes: the curves show every method at its best."""
    rank, _ = pool(cells)["rank"]
    best: dict[str, str] = {}
    for name in methods:
        method = name.split()[0]
        if method not in best or rank[names.index(name)] > rank[names.index(best[method])]:
            best[method] = name
    return list(best.values())


def _equal(cells: Sequence[Cell], i: int, j: int) -> bool:
    return all(
        np.allclose(c.scores[m][:, i], c.scores[m][:, j], rtol=0, atol=1e-6, equal_nan=True)
        for c in cells
        for m in ("rank", "gain")
    )


def _styles(labels: dict[str, str]) -> dict[str, Style]:
    """Colour and marker of every estimator shown."""
    common: Style = {"linewidth": 1.5, "markersize": 6, "capsize": 2.5, "elinewidth": 1}
    styles: dict[str, Style] = {}
    family = [n for n in labels if n.startswith(f"{CLOSURE} K=")]
    for name, colour in zip(family, DEPTHS, strict=False):
        styles[name] = {**common, "color": colour, "marker": "o"}
    styles[CLOSURE] = {**common, "color": CLOSED, "marker": "o", "linewidth": 2.4, "markersize": 8}
    methods: dict[str, int] = {}
    for name in labels:
        if not name.startswith(CLOSURE) and name != ORACLE:
            k = methods.setdefault(name.split()[0], len(methods)) % len(OTHERS)
            styles[name] = {**common, "color": OTHERS[k], "marker": MARKERS[k], "linestyle": "--"}
    return styles
