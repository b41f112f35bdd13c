"""The drawing of one rollout group: its merged empirical process, coloured by the closure's values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import INVALID, EmpiricalProcess, RolloutGroup
from crbc_lab.report.board import Picture, pictures
from crbc_lab.report.graph import BOUNDARY_WIDTH, Layout, Link, lay_out
from crbc_rl.credit import Closure, closure, step_credit

Colour = tuple[int, int, int]

VALUE_COLOURS: tuple[Colour, ...] = ((226, 229, 233), (178, 220, 196), (80, 172, 132), (10, 104, 74))
"""V from 0 to 1."""
CREDIT_COLOURS: tuple[Colour, ...] = ((201, 88, 0), (232, 160, 92), (184, 189, 197), (104, 164, 214), (13, 92, 165))
"""Q - V from the lowest to the highest of the group; colour-blind readers can distinguish orange and blue."""
ARROWS = {"up": "↑", "down": "↓", "left": "←", "right": "→", INVALID: "invalid"}
FRAME = 9.0
"""The width that the ring and the outer frame add to the sides of a picture."""
SHOWN = 5
"""The number of groups in a report."""
LONGEST = 400
"""The most characters of a label or an action that are shown."""


Part = dict[str, Any]
"""What the template draws or writes of one thing, by its names there."""


def choose(groups: Mapping[int, RolloutGroup], at_most: int = SHOWN) -> list[tuple[int, RolloutGroup]]:
    """At most `at_most` groups: the first, the last and evenly between, with mixed outcomes if there are any."""
    mixed = [u for u in sorted(groups) if 0 < groups[u].success_rate < 1]
    updates = mixed or sorted(groups)
    if len(updates) > at_most:
        updates = [updates[round(i * (len(updates) - 1) / (at_most - 1))] for i in range(at_most)]
    return [(update, groups[update]) for update in updates]


def view_group(update: int, group: RolloutGroup, options: Mapping[str, Any]) -> Part:
    """Draw `group`. `options` are those of the run's credit method; the closure's options among them are used.

    Of the numbers, `width` and `height` are those of the drawing, and `node_width` and `node_height` of each anchor.
    `hover` is JSON for the script, with text values only.
    """
    closing = {name: options[name] for name in ("beta", "depth") if name in options}
    gate = {"sigma_min": options["sigma_min"]} if "sigma_min" in options else {}
    process = EmpiricalProcess.from_group(group)
    result = closure(process, **closing)
    credit = step_credit(process, **closing, **gate)
    largest = float(np.abs(result.A).max())
    names = {step.anchor: step.label or step.anchor[:12] for r in group.rollouts for step in r.steps}
    labels = [names[anchor] for anchor in process.anchors]
    drawn = pictures(labels)
    width, height = drawn[0].width, drawn[0].height
    layout = lay_out(len(process.anchors), _links(process), width + FRAME, height + FRAME)
    rows = [_row(process, result, credit, pair, largest) for pair in range(len(process.pairs))]
    best = int(result.sigma.argmax())
    return {
        "number": update,
        "task": _short(group.task, LONGEST),
        "outcome": f"{sum(r.success for r in group.rollouts)} of {len(group)}",
        "width": layout.width,
        "height": layout.height,
        "node_width": width,
        "node_height": height,
        "boundary_width": max(width, BOUNDARY_WIDTH),
        "nodes": _nodes(process, result, drawn, layout, best if largest else -1),
        "edges": _edges(process, result, layout, largest),
        "boundaries": _boundaries(process, layout),
        "facts": _facts(group, process, credit),
        "highlight": _highlight(process, result, rows, drawn, best) if largest else None,
        "largest": f"{largest:.2f}",
        "hover": _hover(process, result, rows, ["" if drawn[i].shapes else label for i, label in enumerate(labels)]),
    }


def ramp(colours: Sequence[Colour], t: float) -> str:
    """The colour at `t` in [0, 1] along evenly spaced `colours`, as #rrggbb."""
    place = min(max(t, 0.0), 1.0) * (len(colours) - 1)
    i = min(int(place), len(colours) - 2)
    mixed = (round(a + (b - a) * (place - i)) for a, b in zip(colours[i], colours[i + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _links(process: EmpiricalProcess) -> list[Link]:
    """One link per observed (anchor, action, successor), in the order of `process.counts`."""
    links = []
    for pair, target in zip(process.counts.row.tolist(), process.counts.col.tolist(), strict=True):
        source, action = process.pairs[pair]
        links.append(Link(source, target, _short(action, 8 if source == target else 14)))
    return links


def _nodes(
    process: EmpiricalProcess, result: Closure, drawn: Sequence[Picture], layout: Layout, best: int
) -> list[Part]:
    """The anchors, each at its upper left corner."""
    return [
        {
            "x": x - picture.width / 2,
            "y": y - picture.height / 2,
            "ring": ramp(VALUE_COLOURS, float(result.V[i])),
            "value": f"{abs(result.V[i]):.2f}",
            "picture": picture,
            "gated": bool(process.actions_per_anchor[i] > 1),
            "highlight": i == best,
        }
        for i, (picture, (x, y)) in enumerate(zip(drawn, layout.at, strict=False))
    ]


def _edges(process: EmpiricalProcess, result: Closure, layout: Layout, largest: float) -> list[Part]:
    """The edges, those with small credit first, so that strong credit is drawn on top."""
    counts = process.counts
    edges = [
        {
            "path": route.path,
            "head": route.head,
            "width": round(min(1.1 + 0.9 * math.sqrt(counts.data[i] - 1), 7.0), 2),
            "colour": _credit_colour(float(result.A[counts.row[i]]), largest),
            "label": link.label,
            "x": route.label[0],
            "y": route.label[1],
            "index": i,
            "source": link.source,
            "target": link.target,
        }
        for i, (link, route) in enumerate(zip(_links(process), layout.routes, strict=True))
    ]
    return sorted(edges, key=lambda edge: (abs(result.A[counts.row[edge["index"]]]), edge["index"]))


def _boundaries(process: EmpiricalProcess, layout: Layout) -> list[Part]:
    """The boundaries that were reached, each at its centre."""
    first, reached = len(process.anchors), set(process.counts.col.tolist())
    places = enumerate(zip(("success", "failure"), layout.at[first:], strict=True), start=first)
    return [{"name": name, "x": x, "y": y, "index": i} for i, (name, (x, y)) in places if i in reached]


def _row(process: EmpiricalProcess, result: Closure, credit: NDArray[np.float64], pair: int, largest: float) -> Part:
    """One action at an anchor, as a table row; `bar` is Q - V divided by the group's largest, in [-1, 1]."""
    strength = float(result.A[pair])
    return {
        "action": _short(process.pairs[pair][1], LONGEST),
        "count": f"{process.pair_count[pair]:.0f}",
        "mu": f"{process.mu[pair]:.2f}",
        "q": f"{abs(result.Q[pair]):.3f}",
        "a": _signed(strength, 3),
        "credit": _signed(float(credit[pair]), 2),
        "bar": strength / largest if largest else 0.0,
        "colour": _credit_colour(strength, largest),
    }


def _facts(group: RolloutGroup, process: EmpiricalProcess, credit: NDArray[np.float64]) -> tuple[tuple[str, str], ...]:
    steps = float(process.pair_count.sum())
    credited = float(process.pair_count[credit != 0].sum())
    shared = int((process.anchor_count > 1).sum())
    return (
        ("rollouts", str(len(group))),
        ("success rate", f"{group.success_rate:.1%}"),
        ("steps", f"{steps:.0f}"),
        ("anchors", str(len(process.anchors))),
        ("visited more than once", str(shared)),
        ("(anchor, action) pairs", str(len(process.pairs))),
        ("gated anchors (2 actions or more)", str(int((process.actions_per_anchor > 1).sum()))),
        ("steps with non-zero step credit", f"{credited / steps:.0%}"),
    )


def _highlight(
    process: EmpiricalProcess, result: Closure, rows: Sequence[Part], drawn: Sequence[Picture], best: int
) -> Part:
    """The anchor whose actions differ most: the largest sigma."""
    own = [row for row, (anchor, _) in zip(rows, process.pairs, strict=True) if anchor == best]
    return {
        "picture": drawn[best],
        "value": f"{abs(result.V[best]):.3f}",
        "sigma": f"{result.sigma[best]:.3f}",
        "rows": sorted(own, key=lambda row: -row["bar"]),
    }


def _hover(process: EmpiricalProcess, result: Closure, rows: Sequence[Part], words: Sequence[str]) -> Part:
    """The tooltips: anchors [V, N, sigma, text], pairs [anchor, action, ...], and edges
    [pair, N(s, a, x), P(x | s, a)], each in the process's order."""
    anchors = [
        [f"{abs(v):.3f}", f"{n:.0f}", f"{sigma:.3f}", text[:LONGEST]]
        for v, n, sigma, text in zip(result.V, process.anchor_count, result.sigma, words, strict=True)
    ]
    told = ("action", "count", "mu", "q", "a", "credit")
    pairs = [[anchor, *(row[name] for name in told)] for row, (anchor, _) in zip(rows, process.pairs, strict=True)]
    counts, P = process.counts, process.P
    edges = [
        [pair, str(n), f"{p:.2f}"]
        for pair, n, p in zip(counts.row.tolist(), counts.data.tolist(), P.data.tolist(), strict=True)
    ]
    return {"anchors": anchors, "pairs": pairs, "edges": edges}


def _credit_colour(strength: float, largest: float) -> str:
    # Rounding must not colour an edge whose credit is zero.
    return ramp(CREDIT_COLOURS, 0.5 + 0.5 * strength / largest if largest > 1e-9 else 0.5)


def _short(action: str, length: int) -> str:
    text = ARROWS.get(action, action)
    return text if len(text) <= length else text[: length - 1] + "…"


def _signed(value: float, digits: int) -> str:
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text
