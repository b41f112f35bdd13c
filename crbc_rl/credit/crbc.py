"""Cross-Rollout Bellman Closure: gated, normalised Q - V beside the group advantage (eqs. 13 and 14)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess
from crbc_rl.credit.closure import BETA, Closure, Truncation, closure
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import check_positive
from crbc_rl.credit.rewards import Earned, Reward

Floats = NDArray[np.float64]
Normalise = Literal["anchor", "group"] | None


def step_credit(
    process: EmpiricalProcess,
    beta: float | Literal["auto"] = BETA,
    depth: int | None = None,
    sigma_min: float = 0.1,
    *,
    normalise: Normalise = "anchor",
    horizon: int | Literal["auto"] | None = None,
    truncation: Truncation = "failure",
    reward: Reward = "outcome",
    invalid_cost: float = 0.0,
) -> Floats:
    """A_S(s, a) = 1{|A(s)| >= 2} (Q - V) / max(sigma(s), sigma_min), shape (L,) (eq. 13).

    Each depth is normalised by its own sigma. Mathematically the gate changes nothing, since with one action Q = V. It
    removes rounding errors. `normalise="group"` divides by one number for the whole group, the root of the mean of
    sigma(s)^2 over its visits to anchors with two or more actions, at least `sigma_min`. None does not divide. The
    other options are `closure`'s. Raises `CreditError` for options out of range.
    """
    check_positive("sigma_min", sigma_min)
    if normalise not in ("anchor", "group", None):
        raise CreditError(f"normalise must be anchor, group or None; got {normalise!r}")
    result = closure(
        process, beta, depth, horizon=horizon, truncation=truncation, reward=reward, invalid_cost=invalid_cost
    )
    if normalise is None:
        return result.A
    scale = result.sigma if normalise == "anchor" else _group_scale(process, result)
    return result.A / np.maximum(scale, sigma_min)[process.pair_anchor]


def _group_scale(process: EmpiricalProcess, result: Closure) -> Floats:
    """The root mean square of A over the visits of each group to anchors with two or more actions, by anchor (S,)."""
    group = process.anchor_group
    visits = np.where(process.actions_per_anchor >= 2, process.anchor_count, 0.0)
    total = np.bincount(group, visits, int(group.max()) + 1)
    squares = np.bincount(group, visits * result.sigma**2, len(total))
    return np.sqrt(squares / np.maximum(total, 1.0))[group]


@estimator(w_group=1.0, w_step=5.0, on_success=True)
def crbc(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    beta: float | Literal["auto"] = BETA,
    depth: int | None = None,
    horizon: int | Literal["auto"] | None = None,
    truncation: Truncation = "failure",
    normalise: Normalise = "anchor",
    sigma_min: float = 0.1,
    invalid_cost: float = 0.0,
) -> Floats:
    """The step credit of each step's pair, (n,); with the group's term it is eq. 14.

    `normalise` and `sigma_min` are `step_credit`'s options, the others `closure`'s; the defaults are the paper's. The
    invalid penalty enters A_G only, since the closure's outcome is binary; `invalid_cost` is its like in the closure.
    `w_group=0, w_step=1` gives the step credit alone. `group_reward="step"` keeps the outcome in the closure beside a
    group advantage of the environment's own rewards.
    """
    by_pair = step_credit(
        process,
        beta,
        depth,
        sigma_min,
        normalise=normalise,
        horizon=horizon,
        truncation=truncation,
        reward=earned.reward,
        invalid_cost=invalid_cost,
    )
    return by_pair[process.steps()[1]]


crbc_plus = crbc.variant("crbc_plus", w_group=0.05, horizon="auto", truncation="successor", sigma_min=0.2)
"""`crbc` with the options that the accuracy study supports best (docs/credit/accuracy.md)."""
