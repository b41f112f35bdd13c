"""GiGPO: each visit's discounted return compared with those of the same anchor (arXiv 2505.10978)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, InternedRollouts
from crbc_rl.credit import trajectory
from crbc_rl.credit.groups import Mode, check_discount, check_finite, check_mode, check_weights, normalise
from crbc_rl.credit.rewards import Reward, check_reward, suffix_returns

Floats = NDArray[np.float64]


def gigpo(
    process: EmpiricalProcess,
    *,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    w_group: float = 1.0,
    w_step: float = 1.0,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: trajectory.Weighting = "rollout",
    reward: Reward = "outcome",
) -> Floats:
    """A = w_group A_E + w_step A_S, one value per step in order.

    A_S normalises `step_returns` over all the visits to the step's anchor, eq. 4 of the
    paper with the public trainer's rewards; A_E is GRPO, or Dr. GRPO with "mean_norm", which drops the
    standard deviation (the sample one) from both. Settings of the paper: gamma 0.95, weights 1 and 1,
    "mean_norm" on Sokoban; the public scripts use it on WebShop too.

    `reward` is what a step earns: success_reward R or the score at the end, or the environment's own rewards.

    Anchors are matched exactly; upstream's similarity matching depends on the order of the rows. An anchor visited
    once, and one whose returns are all equal, get zeros. Note for "mean_std_norm": in a group of failures with one
    malformed reply, the -0.1 among n - 1 zeros becomes about -sqrt(n).
    """
    check_discount("gamma", gamma)
    check_weights(w_group=w_group, w_step=w_step)
    check_mode(mode)
    rollouts = process.steps()[0]
    returns = step_returns(rollouts, gamma, success_reward, invalid_penalty, reward)
    credit = w_step * normalise(returns, rollouts.anchor, process.num_anchors, mode)
    if w_group:
        credit += w_group * trajectory.episode(process, mode, success_reward, invalid_penalty, weighting, reward)
    return credit


def step_returns(
    rollouts: InternedRollouts, gamma: float, success_reward: float, invalid_penalty: float, reward: Reward = "outcome"
) -> Floats:
    """gamma^(T_i - t) success_reward R_i, minus the penalty where the step's own reply was malformed.

    The last step of a success gets the undiscounted reward, one factor of gamma less than the paper's G_(i,t). A
    penalty does not affect earlier steps. These are verl-agent's conventions. `reward="score"` puts the rollout's score
    in place of R_i; `reward="step"` is sum_k gamma^k r_(t+k) of the environment's own rewards, on their own scale.
    """
    check_finite(success_reward=success_reward, invalid_penalty=invalid_penalty)
    check_reward(reward)
    returns = suffix_returns(rollouts, gamma, reward, first=0)
    if reward != "step":
        returns *= success_reward
    returns -= np.where(rollouts.valid, 0.0, invalid_penalty)
    return returns
