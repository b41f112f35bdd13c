"""Draws the credit accuracy study: a panel per metric, a row per world, a mark per estimator.

python scripts/accuracy_figure.py study/credit_accuracy.json docs/credit/credit_accuracy.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

SHOWN = {
    "rank": "rank correlation with the true credit",
    "cosine": "cosine of a group's gradient",
    "mean_cosine": "cosine of the mean gradient",
    "leakage": "|credit| on steps that do not matter",
}
STYLES = {
    "crbc": ("#5796c4", "o"),
    "crbc_plus": ("#0b3c5d", "D"),
    "grpo": ("#7f7f7f", "x"),
    "gigpo": ("#d55e00", "s"),
    "hgpo": ("#e69f00", "v"),
    "graphgpo": ("#009e73", "^"),
    "g2po": ("#cc79a7", "P"),
    "rtmc": ("#a0522d", "X"),
    "truth": ("#222222", "|"),
}
"""Colours that colour-blind readers can distinguish; markers differ too."""


def draw(told: dict[str, Any], path: Path, size: str = "8") -> None:
    """Advantages as they are trained on, of groups of one size. Bars are 95 % intervals over instances."""
    scores = {name: world["by_group_size"][size]["scores"] for name, world in told["worlds"].items()}
    figure = Figure(figsize=(13.5, 2.2 + 0.62 * len(scores)), layout="constrained")
    panels = figure.subplots(1, len(SHOWN), sharey="row")
    names = [name for name in STYLES if all(name in one for one in scores.values())]
    for ax, (metric, title) in zip(panels, SHOWN.items(), strict=True):
        for k, name in enumerate(names):
            colour, marker = STYLES[name]
            points = [one[name][metric] for one in scores.values()]
            middle, width = zip(*((float("nan"), 0.0) if p[0] is None else p for p in points), strict=True)
            rows = [row + 0.7 * ((k + 0.5) / len(names) - 0.5) for row in range(len(scores))]
            ax.errorbar(middle, rows, xerr=width, color=colour, marker=marker, linestyle="none", label=name)
        ax.set_title(title, fontsize=10.5, fontweight="bold")
        ax.grid(color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(scores)), list(scores))
    panels[0].set_ylim(len(scores) - 0.5, -0.5)
    figure.suptitle(f"Advantages against the exact truth, G = {size}", fontsize=13)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names), fontsize=9.5, frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
