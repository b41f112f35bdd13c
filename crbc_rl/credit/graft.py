"""GRAFT: differences of the closure's value along the steps that were taken (arXiv 2609.28963)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from anchors import EmpiricalProcess
from crbc_rl.credit.crbc import BETA, Truncation, closure, discounts
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Floats, apart, check_fraction
from crbc_rl.credit.rewards import Earned, discounted_sums, step_rewards


@estimator()
def graft(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    beta: float | Literal["auto"] = BETA,
    lam: float = 0.0,
    truncation: Truncation = "failure",
) -> Floats:
    """The discounted sum of the differences of V along the rest of the rollout.

    V is the closure's, with its options. A step from s into x has delta = beta (r + V(x)) - V(s), where r is what the
    step earned and V is 0 after the end: with the outcome, beta - V(s) on the last step of a success. A_S is the sum
    of (beta lam)^k delta_(t+k) over the rest of the rollout, which is GAE with this V as the critic.

    With `lam=0` the mean of A_S over the visits to a pair is Q - V exactly, `crbc`'s credit before it is divided. So
    both give one expected gradient; here a step has its own successor's luck besides.

    The text was read in others' words only. As they restate it, its "graph GAE" does not follow the rollout: the k-th
    term is the mean of delta over all the edges observed k steps downstream. The mean of delta over the visits to any
    anchor is 0, since V is the fixed point, so that every such term vanishes: for every lambda it is `lam=0` here.
    The sum along the rollout is ours. The method has no group term.
    """
    check_fraction("lam", lam)
    rollouts = earned.rollouts
    V = closure(process, beta, truncation=truncation, reward=earned.reward).V
    last = np.cumsum(rollouts.length) - 1
    following = V[np.append(rollouts.anchor[1:], 0)]
    following[last] = 0.0
    leads_on = truncation == "successor"
    if leads_on:
        on = rollouts.goes_on
        following[last[on]] = V[rollouts.final_anchor[on]]
    r = step_rewards(rollouts, earned.reward, leads_on)
    by_group = np.broadcast_to(discounts(process, beta), rollouts.num_groups)
    discount = by_group[rollouts.group][rollouts.rollout]
    delta = apart(discount * (r + following), V[rollouts.anchor])
    return discounted_sums(delta, discount * lam, rollouts.remaining)
