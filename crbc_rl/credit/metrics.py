"""Metrics of an update's credit: coverage of its anchors, sizes of its terms, and whether its anchors hide state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, get_args

import numpy as np

from anchors import EmpiricalProcess, RolloutGroup, sum_by
from anchors.columns import Floats
from anchors.coverage import coverages, eligible
from crbc_rl.credit.crbc import BETA, FLAT, closure, discounts, expect
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import Terms
from crbc_rl.credit.rewards import Reward, discounted_sums, powers, step_rewards

DEPTHS = {"0": 0, "1": 1, "3": 3, "full": None}
"""Depths by their names in a metric."""


def credit_metrics(
    process: EmpiricalProcess, terms: Terms | None = None, method: str = "", options: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """The metrics of `process`, and of the terms that `method` found with `options`.

    A metric that an update or a method does not have is left out.
    """
    rollouts = process.steps()[0]
    gate = eligible(process)
    coverage = coverages(process, tuple(DEPTHS.values()))[:, rollouts.anchor]  # (D, n)
    metrics = {
        "gate_open": float(gate.mean()),
        "anchors_per_group": process.num_anchors / rollouts.num_groups,
        "revisit_share": float((coverage[0] > 1).mean()),
    }
    if gate.any():
        share = (coverage / np.bincount(rollouts.group)[rollouts.group[rollouts.rollout]])[:, gate]
        for name, of_depth in zip(DEPTHS, share, strict=True):
            metrics[f"coverage/{name}"] = float(of_depth.mean())
            metrics[f"full_access/{name}"] = float((of_depth == 1.0).mean())
    if terms is not None and terms.step is not None and terms.group is not None:
        metrics["step_term"] = float(np.abs(terms.step).mean())
        metrics["group_term"] = float(np.abs(terms.group).mean())
        metrics["turned"] = float((np.sign(terms.final) * np.sign(terms.group) < 0).mean())
    if method in ("crbc", "crbc_plus"):
        certified = certified_shares(process, (options or {}).get("beta", BETA))
        metrics |= {f"certified/{depth}": share for depth, share in certified.items()}
    return metrics


def run_calibration(process: EmpiricalProcess, method: str, options: Mapping[str, Any]) -> Slope:
    """The slope of an update by the run's reward, and a closure's own options; none where that has no solution."""
    own = {"reward": options["reward"]} if options.get("reward") in get_args(Reward) else {}
    if method in ("crbc", "crbc_plus"):
        own |= {name: options[name] for name in ("beta", "invalid_cost") if name in options}
    try:
        return calibration(process, **own)
    except CreditError:
        return NO_SLOPE


def calibration_metrics(found: Slope) -> dict[str, float]:
    metrics = {"calibration": found.slope, "calibration_upper": found.upper, "calibration_error": found.error}
    return {name: value for name, value in metrics.items() if not np.isnan(value)}


def certified_shares(
    process: EmpiricalProcess, beta: float | Literal["auto"] = BETA, depths: Sequence[int] = (0, 1, 3)
) -> dict[int, float]:
    """The share of anchors at which E_K <= sigma(s) for each K of `depths`, among those with sigma(s) > 0.

    The closure is the paper's, at `beta`. Each group has its own E_K. At depth 0 the bound of eq. 12 does not hold;
    there E_0 = |B V_0 - Q_0| + 2 / (1 - beta) |T V_0 - V_0| in max norms, from eq. 24. The result is empty where no
    sigma(s) is above 0, and where beta is 1.
    """
    full, first = closure(process, beta), closure(process, beta, 0)
    group = process.anchor_group
    discount = np.broadcast_to(discounts(process, beta), int(group.max()) + 1)
    open_ = full.sigma > FLAT
    if not open_.any() or (discount == 1.0).any():
        return {}
    pair_residual = process.backup(first.V, discount[group][process.pair_anchor]) - first.Q
    by_pair, by_anchor = np.zeros(len(discount)), np.zeros(len(discount))
    np.maximum.at(by_pair, group[process.pair_anchor], np.abs(pair_residual))
    np.maximum.at(by_anchor, group, np.abs(expect(process, pair_residual)))
    bounds = {K: 2.0 * powers(discount, K) / (1.0 - discount) * by_anchor + (0.0 if K else by_pair) for K in depths}
    return {K: float((bound[group] <= full.sigma)[open_].mean()) for K, bound in bounds.items()}


# ---- whether anchors hide state: the closure's calibration slope ----------------------------------------

TINY = 1e-12
"""A sum of A^2 up to this is rounding: no action made a difference, as without a success."""
BOUND, ENOUGH = 0.95, 32
"""Anchors hide state where a slope and its error lie below this, in at least so many groups."""
TRUSTED, FEW = 0.97, 8
"""A closure is not trusted where its mean slope lies below this and three errors below 1, in so many groups."""


@dataclass(frozen=True, slots=True, eq=False)
class Slope:
    """A calibration slope, from `sums` by group (3, G): of A (g - v), of the same where a visit is compared with those
    of other rollouts alone, and of A^2.

    In small groups `slope` lies a little below 1 by itself: a rollout that comes back to an anchor is part of the mean
    it is compared with. `upper`, by the second sums, errs to the other side. `error`, of `slope`, has groups as
    clusters. They are nan without `evidence`, groups whose A^2 are not all 0; `error` also with one such group.
    """

    sums: Floats

    @property
    def slope(self) -> float:
        return self._fit(0)[0]

    @property
    def error(self) -> float:
        return self._fit(0)[1]

    @property
    def upper(self) -> float:
        return self._fit(1)[0]

    @property
    def evidence(self) -> int:
        return int((self.sums[2] > TINY).sum())

    @property
    def hidden(self) -> bool:
        """Whether anchors hide state: both slopes lie below `BOUND` by their errors, in `ENOUGH` groups or more."""
        return self.evidence >= ENOUGH and bool(max(sum(self._fit(0)), sum(self._fit(1))) < BOUND)

    @property
    def fails(self) -> bool:
        """Whether the closure is not to be trusted: the mean of both slopes lies below `TRUSTED` and surely below 1."""
        slope, error = np.mean([self._fit(0), self._fit(1)], axis=0)
        return self.evidence >= FEW and bool(slope < min(TRUSTED, 1.0 - 3.0 * error))

    def _fit(self, row: int) -> tuple[float, float]:
        n, total = self.evidence, float(self.sums[2].sum())
        slope = float(self.sums[row].sum()) / total if n else np.nan
        spread = float(((self.sums[row] - slope * self.sums[2]) ** 2).sum())
        return slope, sqrt(spread * n / (n - 1)) / total if n > 1 else np.nan

    def then(self, later: Slope, decay: float = 0.8) -> Slope:
        """This slope and a `later` one pooled, this one's groups weighted by `decay`; the oldest weigh nothing."""
        return Slope(np.append(decay * self.sums, later.sums, axis=1)[:, -4096:])

    def by_kind(self, kinds: Sequence[str]) -> dict[str, Slope]:
        """The slope of each kind of task; `kinds` has one for each group."""
        return {kind: Slope(self.sums[:, [one == kind for one in kinds]]) for kind in sorted(set(kinds))}

    def __str__(self) -> str:
        if np.isnan(self.error):
            return f"calibration slope: too little success to tell, in {self.evidence} groups actions differ"
        slopes = f"{self.slope:.3f} +- {self.error:.3f}, against other rollouts alone {self.upper:.3f}"
        return f"calibration slope {slopes}, of {self.evidence} groups"


NO_SLOPE = Slope(np.zeros((3, 0)))


@dataclass(frozen=True, slots=True, eq=False)
class Calibration(Slope):
    """The `slope` of one `process` and its standard `error`, from `sums` by group (3, G), as `Slope` has them. `harm`
    (S,) is what each anchor adds to slope - 1: the sum over the visits to it of their TD error times the discounted
    credit of the rollout's earlier steps, by the sum of A^2. It is 0 on average where the future depends on the anchor
    alone, so it names the anchors whose future was decided before them."""

    process: EmpiricalProcess
    harm: Floats

    def worst(self, most: int = 5) -> list[tuple[str, float]]:
        """The `most` anchors that take most from the slope, by their labels where there are any, and their `harm`."""
        names, labels = self.process.anchors, self.process.steps()[0].anchor_labels or self.process.anchors
        return [(labels[s] or names[s], float(self.harm[s])) for s in np.argsort(self.harm)[:most] if self.harm[s] < 0]


def calibration(
    of: EmpiricalProcess | Sequence[RolloutGroup],
    beta: float | Literal["auto"] = BETA,
    *,
    reward: Reward = "outcome",
    invalid_cost: float = 0.0,
) -> Calibration:
    """The calibration slope of a process or groups, `of`: sum A (g - v) / sum A^2 over all visits. `beta`, `reward`,
    `invalid_cost` and the errors are `closure`'s.

    g is a visit's own discounted return, v the mean of these at its anchor, and A the closure's Q - V. A rollout that
    is cut goes on with the closure's value of its last anchor.

    The slope is 1 where anchors are Markov, chance or not. With the TD errors d_t = beta (r_t + V(s_t+1)) - V(s_t),
    g_t - V(s_t) is the sum of beta^(k-t) d_k over k >= t, and the mean of d_t at each pair is exactly A. So slope - 1
    is the sum of A_t beta^(k-t) d_k over LATER steps k > t, by sum A^2. Where an anchor tells all that matters for the
    future, nothing done before predicts its TD error, and that sum is 0 on average. Where anchors hide state it is not.
    The baseline v changes nothing, since A sums to zero over an anchor's visits.
    """
    if not isinstance(of, EmpiricalProcess):
        of = EmpiricalProcess.from_groups(of)
    rollouts, pair = of.steps("a calibration slope needs")
    full = closure(of, beta, truncation="successor", reward=reward, invalid_cost=invalid_cost)
    group = rollouts.group[rollouts.rollout]
    discount = np.broadcast_to(discounts(of, beta), rollouts.num_groups)[group]
    after = np.append(full.V[rollouts.anchor[1:]], 0.0)
    after[np.cumsum(rollouts.length) - 1] = np.where(rollouts.goes_on, full.V[rollouts.final_anchor], 0.0)
    errors = discount * (step_rewards(rollouts, reward, True, invalid_cost) + after) - full.V[rollouts.anchor]
    credit = full.A[pair]
    # The credit before each step, sum of beta^(k-t) A_t over t < k: summed from the last row on.
    before = discounted_sums(credit[::-1], discount[::-1], 1 + rollouts.step[::-1])[::-1] - credit
    # TD errors with the mean over the visits of other rollouts in place of V; 0 where there are none.
    own = np.unique(rollouts.rollout * of.num_anchors + rollouts.anchor, return_inverse=True)[1]
    others = of.anchor_count[rollouts.anchor] - np.bincount(own)[own]
    outer = np.where(others > 0, errors + np.bincount(own, errors)[own] / np.maximum(others, 1.0), 0.0)
    squares, later = credit * credit, (errors * before, outer * before, np.zeros(len(group)))
    sums = np.array([sum_by(group, squares + each, rollouts.num_groups) for each in later])
    harm = sum_by(rollouts.anchor, errors * before, of.num_anchors) / max(float(squares.sum()), TINY)
    return Calibration(sums, of, harm)
