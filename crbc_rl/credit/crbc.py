"""Cross-Rollout Bellman Closure: gated, normalised Q - V beside the group advantage (eqs. 13 and 14)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess
from crbc_rl.credit import trajectory
from crbc_rl.credit.closure import closure
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import check_weights

Floats = NDArray[np.float64]


def step_credit(
    process: EmpiricalProcess, beta: float = 0.98, depth: int | None = None, sigma_min: float = 0.1
) -> Floats:
    """A_S(s, a) = 1{|A(s)| >= 2} (Q - V) / max(sigma(s), sigma_min), shape (L,) (eq. 13).

    Each depth is normalised by its own sigma. Mathematically the gate changes nothing, since with one action Q = V. It
    removes rounding errors. Raises `CreditError` for options out of range.
    """
    if not sigma_min > 0.0:
        raise CreditError(f"sigma_min must be positive, got {sigma_min!r}")
    result = closure(process, beta, depth)
    return result.A / np.maximum(result.sigma, sigma_min)[process.pair_anchor]


def crbc(
    process: EmpiricalProcess,
    *,
    beta: float = 0.98,
    depth: int | None = None,
    sigma_min: float = 0.1,
    w_group: float = 1.0,
    w_step: float = 5.0,
    group: Literal["grpo", "drgrpo", "rloo"] = "grpo",
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: trajectory.Weighting = "rollout",
) -> Floats:
    """A_final = w_group A_G + w_step A_S, one value per step in order (eq. 14).

    `group` selects the trajectory-level advantage A_G; `success_reward`, `invalid_penalty` and `weighting` are its
    options. The invalid penalty enters A_G only, since the closure's outcome is binary. `w_group=0, w_step=1` gives the
    step credit alone.
    """
    check_weights(w_group=w_group, w_step=w_step)
    if group not in trajectory.METHODS:
        raise CreditError(f"group must be one of {', '.join(trajectory.METHODS)}; got {group!r}")
    _, pair = process.steps()
    credit = w_step * step_credit(process, beta, depth, sigma_min)[pair]
    if w_group:
        credit += w_group * trajectory.METHODS[group](
            process, success_reward=success_reward, invalid_penalty=invalid_penalty, weighting=weighting
        )
    return credit
