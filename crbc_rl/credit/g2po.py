"""G2PO: differences of visit-mean values along the edges of the group's graph (arXiv 2606.22995)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit import trajectory
from crbc_rl.credit.closure import suffix_returns
from crbc_rl.credit.groups import Mode, check_discount, check_mode, check_weights, normalise

Floats = NDArray[np.float64]


def g2po(
    process: EmpiricalProcess,
    *,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    w_group: float = 1.0,
    w_step: float = 1.0,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: trajectory.Weighting = "rollout",
) -> Floats:
    """A = w_group A_E + w_step (c_1 + c_2), one value per step in order.

    V(s) is the mean of success_reward gamma^(T_i - t + 1) R_i over the visits to s, the paper's V_0
    scaled; V is `success_reward` at success and 0 at failure. For a step from s into x, c_1 normalises
    V(x), less the penalty where the reply was malformed, over the visits to s; c_2 normalises the gain
    V(x) - V(s) over all steps of the group. A_E is GRPO, or Dr. GRPO with "mean_norm", which drops the
    (sample) standard deviation everywhere and is the public code's default; the method as described
    standardises.

    An anchor visited once has c_1 = 0. A group of one step has c_2 = 0 (NaN in the public code). A group of failures
    with one malformed reply has c_2 = 0, and c_1 is nonzero at that anchor only. GRAFT (arXiv 2609.28963) computes the
    same gain from the closure's V instead of the visit means.
    """
    check_discount("gamma", gamma)
    check_weights(w_group=w_group, w_step=w_step)
    check_mode(mode)
    rollouts, size = process.steps()[0], process.num_anchors
    totals = sum_by(rollouts.anchor, suffix_returns(rollouts, gamma), size)
    V = success_reward * np.append(totals / process.anchor_count, (1.0, 0.0))
    successor = np.append(rollouts.anchor[1:], 0)
    successor[np.cumsum(rollouts.length) - 1] = np.where(rollouts.success, size, size + 1)
    reached = V[successor]
    edge = normalise(reached - np.where(rollouts.valid, 0.0, invalid_penalty), rollouts.anchor, size, mode)
    group = rollouts.group[rollouts.rollout]
    gain = normalise(reached - V[rollouts.anchor], group, int(group[-1]) + 1, mode)
    credit = w_step * (edge + gain)
    if w_group:
        credit += w_group * trajectory.episode(process, mode, success_reward, invalid_penalty, weighting)
    return credit
