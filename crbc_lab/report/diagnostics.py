"""How much the replies of a run depend on their prompts, and whether its credit was ever certified."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from crbc_lab.report.charts import Series, column
from crbc_lab.report.estimators import CLOSURES
from crbc_lab.report.scenes import Scene
from crbc_rl.runs.lines import Record

WORD = re.compile(r"\w+")
REPLIES = 200
"""The most replies of an update that are compared, evenly chosen."""


def diversity(scenes: Sequence[Scene]) -> list[Series]:
    """The mean distance of replies to one prompt and to different prompts, over the updates with transcripts."""
    rows = []
    for update in sorted({scene.update for scene in scenes if scene.kind == "training" and scene.turns}):
        turns = [turn for s in scenes if s.kind == "training" and s.update == update for turn in s.turns or ()]
        chosen = turns[:: -(-len(turns) // REPLIES)]
        means = distances([(turn.prompt, turn.reply) for turn in chosen])
        if None not in means:
            rows.append((update, *means))
    x, one, other = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return [Series("one prompt", x, one, "first"), Series("different prompts", x, other, "second")]


def distances(replies: Sequence[tuple[str, str]]) -> tuple[float | None, float | None]:
    """The mean distance of all pairs of (prompt, reply) with one prompt, and of those with two; None without a pair."""
    words = [(prompt, frozenset(WORD.findall(reply))) for prompt, reply in replies]
    found: Mapping[bool, list[float]] = {True: [], False: []}
    for (prompt, a), (other, b) in combinations(words, 2):
        found[prompt == other].append(1 - len(a & b) / len(a | b) if a | b else 0.0)
    same, different = (sum(some) / len(some) if some else None for some in (found[True], found[False]))
    return same, different


def certified(records: Sequence[Record], method: str) -> str:
    """Why no anchor was ever certified: "zero", the bound was above every sigma; "none", there was no sigma or bound;
    "", some were, or nothing is known."""
    shares = [column(records, f"certified/{depth}")[1] for depth in (0, 1, 3)]
    if method not in CLOSURES or any(share.any() for share in shares) or not column(records, "gate_open")[1].any():
        return ""
    return "zero" if len(shares[0]) else "none"
