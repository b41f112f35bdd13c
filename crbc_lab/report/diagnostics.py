"""What the curves of a run say in words, and how much its replies depend on their prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from crbc_lab.report.charts import Series, column
from crbc_lab.report.estimators import CLOSURES, discount_of
from crbc_lab.report.scenes import Scene
from crbc_rl.config.sections import CreditConfig
from crbc_rl.runs.lines import Record

WORD = re.compile(r"\w+")
REPLIES = 200
"""The most replies of an update that are compared, evenly chosen."""
FORMULA = (
    "The distance of two replies is 1 − |A ∩ B| / |A ∪ B|, with A and B their words. Drawn is its mean over all pairs "
    "of replies to one prompt, and over all pairs to different prompts of a kept group. Where both are alike, replies "
    "no longer depend on the prompt; where the first is 0, sampling no longer explores."
)


def notes(records: Sequence[Record], credit: CreditConfig) -> list[str]:
    """Sentences about what the charts of credit show."""
    return [*_certified(records, credit), *_signal(records)]


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


def _certified(records: Sequence[Record], credit: CreditConfig) -> Iterator[str]:
    """Why no anchor was ever certified, where that is so."""
    if credit.method not in CLOSURES:
        return
    shares = {depth: column(records, f"certified/{depth}")[1] for depth in (0, 1, 3)}
    if any(share.any() for share in shares.values()) or not column(records, "gate_open")[1].any():
        return
    beta = discount_of(credit)
    if not len(shares[3]):
        reason = (
            "the bound is divided by 1 − β, and β is 1" if beta == 1 else "no anchor had actions of different value"
        )
        yield f"Certified anchors: none, since {reason}."
    elif beta != "auto":
        yield (
            f"Certified anchors: 0 % in every update. At depth 3 the bound is 2 β³ / (1 − β) = "
            f"{2 * beta**3 / (1 - beta):.3g} times the largest residual |T V₀ − V₀| of the group. It has to lie below "
            f"σ(s), which is at most β / 2 = {beta / 2:.3g}. The bound is sufficient, not necessary: the charts of "
            "coverage show what each depth sees."
        )
    else:
        yield "Certified anchors: 0 % in every update: the bound of Corollary 3 is above σ(s) at every anchor."


def _signal(records: Sequence[Record]) -> Iterator[str]:
    mixed = column(records, "mixed_groups")[1]
    if len(mixed):
        yield (
            f"Groups without signal: {1 - mixed.mean():.0%} of all groups had one outcome, {1 - mixed[0]:.0%} in the "
            f"first update and {1 - mixed[-1]:.0%} in the last. They have no group advantage."
        )
