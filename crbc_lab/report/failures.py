"""What failed rollouts have in common: where they ended, what they repeated, and which replies were refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from crbc_lab.report.board import pictures
from crbc_lab.report.group import Part
from crbc_lab.report.scenes import Scene, shortened

MOST, LINKS = 5, 4
"""Rows of a table, and links of a row, the first of each."""
REVISITS = 3
"""From so many visits of a failed rollout to one anchor on, it is a loop."""
LONGEST = 120
"""Characters of an anchor's label or a task."""

Place = tuple[Scene, int, int]
"""A scene, and a rollout and a step of it."""


def failures(scenes: Sequence[Scene]) -> Part:
    """Tables for the template: `lost`, `loops` and `invalid` as in `_rows`; `tasks`, both plays of held-out tasks, of
    which the last policy solved `won`.

    `lost` and `loops` have a row for each anchor, by how many failed rollouts ended or turned there.
    """
    ends: dict[str, list[Place]] = {}
    loops: dict[str, list[Place]] = {}
    causes: dict[str, list[Place]] = {}
    longest: Counter[str] = Counter()
    rollouts = [(scene, i, rollout) for scene in scenes for i, rollout in enumerate(scene.group.rollouts)]
    for scene, number, rollout in rollouts:
        turns = scene.turns_of(number)
        for t, step in enumerate(rollout.steps):
            if not step.valid:
                cause = turns[t].cause if turns else ""
                causes.setdefault(cause or "cause not kept", []).append((scene, number, t))
        if rollout.success:
            continue
        labels = [step.label or step.anchor for step in rollout.steps]
        ends.setdefault(labels[-1], []).append((scene, number, len(rollout) - 1))
        anchor, visits = Counter(step.anchor for step in rollout.steps).most_common(1)[0]
        if visits >= REVISITS:
            at = max(t for t, step in enumerate(rollout.steps) if step.anchor == anchor)
            loops.setdefault(labels[at], []).append((scene, number, at))
            longest[labels[at]] = max(longest[labels[at]], visits)
    tasks = _tasks(scenes)
    return {
        "rollouts": len(rollouts),
        "failed": sum(not rollout.success for *_, rollout in rollouts),
        "lost": _rows(ends),
        "loops": _rows(loops, longest),
        "invalid": _rows(causes),
        "tasks": tasks,
        "won": sum(row[-1].startswith("solved") for row in tasks),
    }


def _rows(found: dict[str, list[Place]], visits: Counter[str] | None = None) -> Part:
    """`rows`, the most frequent first, each with its picture, or with words where anchors have none; `total`, the
    number of places; `more`, the number of rows that are left out, and of the places in them."""
    every = sorted(found.items(), key=lambda item: -len(item[1]))
    ordered, left = every[:MOST], every[MOST:]
    drawn = pictures([label for label, _ in ordered]) if ordered else []
    rows = [
        {
            "label": shortened(label, LONGEST),
            "picture": picture if picture.shapes else None,
            "count": len(places),
            "visits": visits[label] if visits else 0,
            "links": [f"{scene.key}/{number}/{t}" for scene, number, t in places[:LINKS]],
        }
        for (label, places), picture in zip(ordered, drawn, strict=True)
    ]
    total, more = (sum(len(places) for _, places in some) for some in (every, left))
    return {"rows": rows, "total": total, "more": (len(left), more)}


def _tasks(scenes: Sequence[Scene]) -> list[tuple[str, str, str, str, str]]:
    """Held-out tasks that were played at the start and by the last policy, what the last one lost first: the task, and
    of both plays the address and the ending."""
    first = {scene.group.task: scene for scene in scenes if scene.kind == "start"}
    last = [scene for scene in scenes if scene.kind == "last" and scene.group.task in first]
    rows = []
    for scene in sorted(last, key=lambda scene: scene.group.success_rate):
        plays = [(f"{s.key}/0/{len(s.group.rollouts[0]) - 1}", s.ending) for s in (first[scene.group.task], scene)]
        rows.append((shortened(scene.group.task, LONGEST), *plays[0], *plays[1]))
    return rows
