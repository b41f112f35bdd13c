"""Metrics of an update's credit: coverage of its anchors, and sizes of its terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from anchors import EmpiricalProcess
from anchors.coverage import coverages, eligible
from crbc_rl.credit.calibration import NO_SLOPE, Slope, calibration
from crbc_rl.credit.crbc import BETA, FLAT, closure, discounts, expect
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import Terms
from crbc_rl.credit.rewards import Reward, powers

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
