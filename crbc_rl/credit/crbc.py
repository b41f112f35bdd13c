"""Cross-Rollout Bellman Closure: gated, normalised Q - V beside the group advantage (eqs. 13 and 14)."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit import trajectory
from crbc_rl.credit.closure import BETA, Closure, Truncation, closure
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import check_finite, check_positive, check_weights
from crbc_rl.credit.rewards import Reward, check_reward

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
    total = sum_by(group, visits, int(group.max()) + 1)
    squares = sum_by(group, visits * result.sigma**2, len(total))
    return np.sqrt(squares / np.maximum(total, 1.0))[group]


def crbc(
    process: EmpiricalProcess,
    *,
    beta: float | Literal["auto"] = BETA,
    depth: int | None = None,
    horizon: int | Literal["auto"] | None = None,
    truncation: Truncation = "failure",
    reward: Reward = "outcome",
    group_reward: Reward | None = None,
    normalise: Normalise = "anchor",
    sigma_min: float = 0.1,
    w_group: float = 1.0,
    w_step: float = 5.0,
    group: Literal["grpo", "drgrpo", "rloo"] = "grpo",
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    invalid_cost: float = 0.0,
    weighting: trajectory.Weighting = "rollout",
) -> Floats:
    """A_final = w_group A_G + w_step A_S, one value per step in order (eq. 14).

    `group` selects the trajectory-level advantage A_G; `success_reward`, `invalid_penalty` and `weighting` are its
    options. The invalid penalty enters A_G only, since the closure's outcome is binary; `invalid_cost` is its like in
    the closure. `w_group=0, w_step=1` gives the step credit alone. `beta`, `depth`, `horizon`, `truncation`, `reward`
    and `invalid_cost` are `closure`'s options, `normalise` is `step_credit`'s; the defaults are the paper's. `reward`
    applies to A_G too, unless `group_reward` says what A_G compares: with "step" the closure keeps the outcome beside a
    group advantage of the environment's own rewards.
    """
    check_weights(w_group=w_group, w_step=w_step)
    check_finite(success_reward=success_reward, invalid_penalty=invalid_penalty)
    if group_reward is not None:
        check_reward(group_reward)
    if group not in trajectory.METHODS:
        raise CreditError(f"group must be one of {', '.join(trajectory.METHODS)}; got {group!r}")
    _, pair = process.steps()
    credit = step_credit(
        process,
        beta,
        depth,
        sigma_min,
        normalise=normalise,
        horizon=horizon,
        truncation=truncation,
        reward=reward,
        invalid_cost=invalid_cost,
    )[pair]
    return trajectory.joined(
        process,
        w_step * credit,
        w_group,
        group,
        success_reward=success_reward,
        invalid_penalty=invalid_penalty,
        weighting=weighting,
        reward=reward if group_reward is None else group_reward,
    )


crbc_plus = partial(crbc, horizon="auto", truncation="successor", sigma_min=0.2, w_group=0.05)
"""`crbc` with the options that the accuracy study supports best (docs/credit/accuracy.md)."""
