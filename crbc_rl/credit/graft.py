"""GRAFT: differences of the closure's value along the steps that were taken (arXiv 2609.28963)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess
from crbc_rl.credit import trajectory
from crbc_rl.credit.closure import BETA, Truncation, closure, discounts
from crbc_rl.credit.groups import apart, check_finite, check_fraction, check_weights
from crbc_rl.credit.rewards import Reward, discounted_sums, step_rewards

Floats = NDArray[np.float64]


def graft(
    process: EmpiricalProcess,
    *,
    beta: float | Literal["auto"] = BETA,
    lam: float = 0.0,
    truncation: Truncation = "failure",
    reward: Reward = "outcome",
    w_group: float = 0.0,
    w_step: float = 1.0,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: trajectory.Weighting = "rollout",
) -> Floats:
    """A = w_group A_G + w_step A_S, one value per step in order; by default A_S alone, as in the method.

    V is the closure's, with its options. A step from s into x has delta = beta (r + V(x)) - V(s), where r is what the
    step earned and V is 0 after the end: with the outcome, beta - V(s) on the last step of a success. A_S is the sum
    of (beta lam)^k delta_(t+k) over the rest of the rollout, which is GAE with this V as the critic.

    With `lam=0` the mean of A_S over the visits to a pair is Q - V exactly, `crbc`'s credit before it is divided. So
    both give one expected gradient; here a step has its own successor's luck besides.

    The text was read in others' words only. As they restate it, its "graph GAE" does not follow the rollout: the k-th
    term is the mean of delta over all the edges observed k steps downstream. The mean of delta over the visits to any
    anchor is 0, since V is the fixed point, so that every such term vanishes: for every lambda it is `lam=0` here.
    The sum along the rollout is ours, and so are w_group and the malformed replies' penalty in A_G (GRPO).
    """
    check_weights(w_group=w_group, w_step=w_step)
    check_finite(success_reward=success_reward, invalid_penalty=invalid_penalty)
    check_fraction("lam", lam)
    rollouts = process.steps()[0]
    V = closure(process, beta, truncation=truncation, reward=reward).V
    last = np.cumsum(rollouts.length) - 1
    following = V[np.append(rollouts.anchor[1:], 0)]
    following[last] = 0.0
    leads_on = truncation == "successor"
    if leads_on:
        on = rollouts.goes_on
        following[last[on]] = V[rollouts.final_anchor[on]]
    earned = step_rewards(rollouts, reward, leads_on)
    by_group = np.broadcast_to(discounts(process, beta), rollouts.num_groups)
    discount = by_group[rollouts.group][rollouts.rollout]
    delta = apart(discount * (earned + following), V[rollouts.anchor])
    return trajectory.joined(
        process,
        w_step * discounted_sums(delta, discount * lam, rollouts.remaining),
        w_group,
        success_reward=success_reward,
        invalid_penalty=invalid_penalty,
        weighting=weighting,
        reward=reward,
    )
