"""What the credit accuracy study measures on one group: the values of E estimators against the exact truth.

Every function takes a `Group` and returns arrays over the estimators, by metric. A metric that a group cannot answer
is missing or nan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from anchors import EmpiricalProcess
from anchors.columns import Bools, Floats, Ints
from crbc_lab.studies.mdp import TINY, Sample, TabularMDP, Truth

Scores = dict[str, Floats]

METRICS = {
    "rank": "rank correlation with the true credit (Spearman) over the pairs (anchor, action) of a group",
    "sign": "share of pairs with the sign of the truth; no credit counts as wrong",
    "zero": "share of pairs with a true effect and exactly no credit",
    "cosine": "cosine of a group's policy gradient to the true one; a gradient of zero counts as 0",
    "mean_cosine": "cosine of the mean gradient over all groups, failed ones included: 1 is no bias in direction",
    "noise": "variance of a group's gradient, relative to the square of its mean",
    "leakage": "share of |credit| on steps at which no action changes the true value",
    "bad": "credit of the bad step of a repaired success, in units of the group's root mean square",
    "repair": "credit of its repairing step",
    "repaired": "share of repaired successes with blame for the bad and praise for the repairing step",
}
"""The metrics, with their descriptions."""

PARTS = ("aligned", "kept", "toward")
"""What `mean_cosine` and `noise` are made of: see `mean_gradient`."""

BY_GROUP = tuple(name for name in METRICS if name not in ("mean_cosine", "noise"))
"""The metrics with a value per group, for groups with a success."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One group of r steps and p pairs (anchor, action), in a process under a policy (n, A) with its truth.

    Per step: the `values` (E, r) of each estimator, `state`, `time`, `rollout` and `pair` (r,). Per pair: `anchor`,
    `action`, `count` (p,), and `gated`, whether its anchor has two or more observed actions. `won`: per rollout.
    """

    mdp: TabularMDP
    policy: Floats
    truth: Truth
    values: Floats
    state: Ints
    action: Ints
    time: Ints
    rollout: Ints
    pair: Ints
    pair_anchor: Ints
    pair_action: Ints
    count: Floats
    gated: Bools
    won: Bools

    @property
    def total(self) -> Floats:
        """The sum of each estimator's values over the visits of each pair, (E, p)."""
        return sum_rows(self.values, self.pair, len(self.count))


def groups_of(
    drawn: Sample, process: EmpiricalProcess, values: Floats, truths: Sequence[tuple[TabularMDP, Floats, Truth]]
) -> Iterator[Group]:
    """Cut what was computed for all groups together into groups, in order. `truths`: of each group's process."""
    rollouts, pair = process.steps()
    ends = np.cumsum(rollouts.length)
    members = np.searchsorted(rollouts.group, np.arange(rollouts.num_groups + 1))
    rows = np.append(0, ends)[members]
    # Pairs are sorted by anchor and anchors by group, so a group's pairs are neighbours.
    some_row = np.empty(process.num_pairs, dtype=np.int64)
    some_row[pair] = np.arange(len(pair))
    pairs = np.searchsorted(rollouts.group[rollouts.rollout[some_row]], np.arange(rollouts.num_groups + 1))
    gated = process.actions_per_anchor[process.pair_anchor] >= 2
    time = rollouts.step
    for g, (mdp, policy, truth) in enumerate(truths):
        here, own = slice(rows[g], rows[g + 1]), slice(pairs[g], pairs[g + 1])
        yield Group(
            mdp,
            policy,
            truth,
            values[:, here],
            drawn.state[here],
            drawn.action[here],
            time[here],
            rollouts.rollout[here] - members[g],
            pair[here] - pairs[g],
            drawn.anchor[some_row[own]],
            drawn.action[some_row[own]],
            process.pair_count[own],
            gated[own],
            rollouts.success[members[g] : members[g + 1]],
        )


def with_truth(group: Group) -> Group:
    """The same group with one more estimator, the last: the true credit of each step's anchor and action."""
    true = group.truth.credit[group.pair_anchor, group.pair_action][group.pair]
    return replace(group, values=np.vstack([group.values, true]))


def sum_rows(values: Floats, index: Ints, size: int) -> Floats:
    """out[e, i] is the sum of values[e] where `index` is i, (E, size)."""
    place = index + size * np.arange(len(values))[:, None]
    sums = np.bincount(place.ravel(), weights=values.ravel(), minlength=size * len(values))
    return sums.astype(np.float64, copy=False).reshape(-1, size)


# ---- who is credited ----------------------------------------------------------------------------


def identification(group: Group) -> Scores:
    """`rank`, `sign` and `zero`, over pairs whose anchor has two or more observed actions.

    Credit that differs between the visits of a pair is averaged over them.
    """
    gated = group.gated
    t = group.truth.credit[group.pair_anchor, group.pair_action][gated]
    effect = np.abs(t) > TINY
    if not effect.any():
        return {}
    c = group.total[:, gated] / group.count[gated]
    # Rounding must not break ties: credit is compared at ten digits relative to the group's largest.
    digits = np.round(c / np.maximum(np.abs(c).max(axis=1, keepdims=True), 1e-300), 10)
    ranks = rankdata(np.vstack([digits, np.round(t, 10)]), axis=1)
    return {
        # Equal pairs have no order.
        **({} if np.ptp(ranks[-1]) == 0 else {"rank": spearman(ranks[:-1], ranks[-1])}),
        "sign": (np.sign(digits[:, effect]) == np.sign(t[effect])).mean(axis=1),
        "zero": (digits[:, effect] == 0.0).mean(axis=1),
    }


def spearman(ranks: Floats, truth: Floats) -> Floats:
    """Correlation of each row of ranks with the ranks of the truth; zero for a constant row."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    true = truth - truth.mean()
    norm = np.sqrt((centred**2).sum(axis=1) * (true @ true))
    product: Floats = centred @ true
    return product / np.where(norm > 0.0, norm, np.inf)


# ---- where the policy is moved ------------------------------------------------------------------


def gradient(group: Group) -> tuple[Ints, Floats]:
    """The anchors that the group visited (o,), and each estimator's policy gradient at them, (E, o, A).

    It is the sum over visits of the value times (1[a was taken] - pi(a)).
    """
    anchors, place = np.unique(group.pair_anchor, return_inverse=True)
    gradients = np.zeros((len(group.values), len(anchors), group.policy.shape[1]))
    gradients[:, place, group.pair_action] = group.total
    states, visit = np.unique(group.state, return_inverse=True)
    order = np.argsort(group.mdp.anchor[states], kind="stable")
    weight = sum_rows(group.values, visit, len(states))[:, order, None] * group.policy[states[order]]
    first = np.searchsorted(group.mdp.anchor[states[order]], anchors)
    return anchors, gradients - np.add.reduceat(weight, first, axis=1)


def mean_gradient(total: Floats, along: Floats, squares: Floats, truth: Truth) -> Scores:
    """The parts of `mean_cosine` and `noise` from K groups.

    `total` (E, O, A): the sum of their gradients. `along` (K, E): each one's product with the unit vector u of the true
    gradient. `squares` (E,): the sum of their squared lengths. With m the expected gradient of one group and L the mean
    squared length, `kept` estimates |m|^2 / L and `aligned` (m u)^2 / L. Products of two different groups make both
    numerators unbiased for any K. `toward` is the mean of m u / L^(1/2), for the sign.
    """
    count = len(along)
    size = np.where(squares > TINY**2, squares / count, np.nan)
    pairs = count * (count - 1)
    return {
        "kept": ((total**2).sum(axis=(1, 2)) - squares) / pairs / size,
        "aligned": (along.sum(axis=0) ** 2 - (along**2).sum(axis=0)) / pairs / size,
        "toward": along.mean(axis=0) / np.sqrt(size),
    }


def unit(truth: Truth) -> Floats:
    """The direction of the true gradient (O, A), of length one; zero if the gradient is."""
    size = float(np.sqrt((truth.gradient**2).sum()))
    return truth.gradient / size if size > 0.0 else truth.gradient


# ---- single steps -------------------------------------------------------------------------------


def leakage(group: Group) -> Scores:
    """The share of |credit| on steps at which no action changes the value; nothing if the group has no such step."""
    idle = group.truth.idle[group.time, group.state]
    if not idle.any():
        return {}
    size = np.abs(group.values)
    total = size.sum(axis=1)
    return {"leakage": np.where(total > TINY, size[:, idle].sum(axis=1) / np.where(total > TINY, total, 1.0), np.nan)}


def repaired(group: Group) -> Scores:
    """`bad`, `repair` and `repaired`, over the successes with a step marked "bad" and one marked "repair"."""
    marks = group.mdp.marks
    if "bad" not in marks or "repair" not in marks:
        return {}
    masks = [marks[name][group.state, group.action] for name in ("bad", "repair")]
    counts = [np.bincount(group.rollout[mask], minlength=len(group.won)) for mask in masks]
    both = group.won & (counts[0] > 0) & (counts[1] > 0)
    if not both.any():
        return {}
    size = np.sqrt((group.values**2).mean(axis=1, keepdims=True))
    values = group.values / np.where(size > TINY, size, np.inf)
    blame, praise = (
        sum_rows(values[:, mask], group.rollout[mask], len(both))[:, both] / count[both]
        for mask, count in zip(masks, counts, strict=True)
    )
    right = ((blame < -TINY) & (praise > TINY)).mean(axis=1)
    return {"bad": blame.mean(axis=1), "repair": praise.mean(axis=1), "repaired": right}
