"""The drawing of one rollout group: its merged empirical process, coloured by the closure's values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import INVALID, EmpiricalProcess, RolloutGroup
from crbc_lab.report.board import Picture, pictures
from crbc_lab.report.estimators import Named, compared, credits, options_of, plain, signed
from crbc_lab.report.graph import BOUNDARY_WIDTH, Layout, Link, lay_out
from crbc_lab.report.scenes import KINDS, Scene, Texts, ending, shortened
from crbc_lab.report.tokens import rows_of
from crbc_rl.credit import Closure, closure, step_credit

Colour = tuple[int, int, int]

VALUE_COLOURS: tuple[Colour, ...] = ((226, 229, 233), (178, 220, 196), (80, 172, 132), (10, 104, 74))
"""V from 0 to 1."""
CREDIT_COLOURS: tuple[Colour, ...] = ((201, 88, 0), (232, 160, 92), (184, 189, 197), (104, 164, 214), (13, 92, 165))
"""Q - V from the lowest to the highest of the group; colour-blind readers can distinguish orange and blue."""
ARROWS = {"up": "↑", "down": "↓", "left": "←", "right": "→", INVALID: "invalid"}
FRAME = 9.0
"""The width that the ring and the outer frame add to the sides of a picture."""
LONGEST = 400
"""The most characters of a label or an action that are shown."""


Part = dict[str, Any]
"""What the template draws or writes of one thing, by its names there."""


def view_group(scene: Scene, texts: Texts, asked: Sequence[Named] = ()) -> Part:
    """Draw the group of `scene`, and tell its rollouts. The closure has the options of the run's own method. Credit is
    that of the estimators of every page, and of those `asked` for.

    Of the numbers, `width` and `height` are those of the drawing, and `node_width` and `node_height` of each anchor.
    `data` is JSON for the script: texts alone where something is shown, `texts` the pieces of prompts and replies.
    """
    group = scene.group
    process = EmpiricalProcess.from_group(group)
    result = closure(process, **options_of(closure, scene.credit))
    credit = step_credit(process, **options_of(step_credit, scene.credit))
    largest = float(np.abs(result.A).max())
    names = {step.anchor: step.label or step.anchor[:12] for r in group.rollouts for step in r.steps}
    labels = [names[anchor] for anchor in process.anchors]
    drawn = pictures(labels)
    width, height = drawn[0].width, drawn[0].height
    layout = lay_out(len(process.anchors), _links(process), width + FRAME, height + FRAME)
    best = int(result.sigma.argmax()) if largest else -1
    estimators = [*compared(scene.credit), *asked]
    words = ["" if drawn[i].shapes else label for i, label in enumerate(labels)]
    return {
        "key": scene.key,
        "kind": KINDS[scene.kind],
        "title": scene.title,
        "task": _short(group.task, LONGEST),
        "width": layout.width,
        "height": layout.height,
        "node_width": width,
        "node_height": height,
        "boundary_width": max(width, BOUNDARY_WIDTH),
        "nodes": _nodes(process, result, drawn, layout, best),
        "edges": _edges(process, result, layout, largest),
        "boundaries": _boundaries(process, layout),
        "facts": _facts(group, process, credit),
        "largest": f"{largest:.2f}",
        "best": best,
        "data": {
            **_figures(process, result, credit, [texts.cut(word) for word in words]),
            "rollouts": _rollouts(scene, process, texts),
            "estimators": [one.name for one in estimators],
            "credit": credits(group, estimators),
        },
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
        links.append(Link(source, target, _short(action, 8 if source == target else 12)))
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
            "value": plain(float(result.V[i]), 2),
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


def _rollouts(scene: Scene, process: EmpiricalProcess, texts: Texts) -> list[Part]:
    """The rollouts: how each ended, and of its steps pair and reward, and prompt, reply, cause and tokens if known."""
    rollouts, pair = process.steps()
    told = []
    for number, (rollout, own) in enumerate(
        zip(scene.group.rollouts, np.split(pair, np.cumsum(rollouts.length)[:-1]), strict=True)
    ):
        turns = scene.turns_of(number)
        fits = sum(len(turn.ratios) for turn in turns) <= texts.tokens
        tokens = [rows_of(turn, scene.run) for turn in turns] if fits else []
        texts.tokens -= sum(map(len, tokens))
        told.append(
            {
                "ending": ending(rollout),
                "pairs": own.tolist(),
                "rewards": [signed(step.reward, 1) for step in rollout.steps],
                "frames": [texts.frame(png) for png in scene.images_of(number)],
                "prompts": [texts.cut(turn.prompt) for turn in turns],
                "replies": [texts.cut(turn.reply) for turn in turns],
                "causes": [turn.cause for turn in turns],
                "tokens": tokens,
                "cut": not fits,
            }
        )
    return told


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


def _figures(
    process: EmpiricalProcess, result: Closure, credit: NDArray[np.float64], words: Sequence[list[int]]
) -> Part:
    """The anchors [V, N, sigma, pieces of the text], the pairs [anchor, action, N, mu, Q, Q - V, step credit], and the
    edges [pair, N(s, a, x), P(x | s, a)], each in the process's order."""
    anchors = [
        [plain(float(v), 3), f"{n:.0f}", f"{sigma:.3f}", text]
        for v, n, sigma, text in zip(result.V, process.anchor_count, result.sigma, words, strict=True)
    ]
    pairs = [
        [
            anchor,
            _short(action, LONGEST),
            f"{process.pair_count[i]:.0f}",
            f"{process.mu[i]:.2f}",
            plain(float(result.Q[i]), 3),
            signed(float(result.A[i]), 3),
            signed(float(credit[i]), 2),
        ]
        for i, (anchor, action) in enumerate(process.pairs)
    ]
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
    return shortened(ARROWS.get(action, action), length)
