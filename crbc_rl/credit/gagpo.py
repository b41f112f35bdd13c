"""GAGPO: GAE over the visit means of the group's anchors (arXiv 2605.13217)."""

from __future__ import annotations

import numpy as np

from anchors import EmpiricalProcess, sum_by
from anchors.columns import Floats
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Mode, apart, check_discount, check_fraction, check_mode, normalise, rounding_of
from crbc_rl.credit.rewards import Earned, discounted_sums


@estimator()
def gagpo(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    gamma: float = 0.95,
    lam: float = 0.95,
    mode: Mode = "mean_std_norm",
) -> Floats:
    """GAE with a critic that is read off the group, normalised over the group's steps; one value per step in order.

    V(s) is the mean over the visits to s of sum_k gamma^k r_(t+k), the value proxy; V is 0 after the end. With
    delta_t = r_t + gamma V(s_(t+1)) - V(s_t) and A_t = delta_t + gamma lam A_(t+1), the advantage is A normalised over
    all steps of the group (sample std). The method has no trajectory-level term: the paper reports that one does harm.

    r is `Earned.by_step`.

    The paper was read in its abstract and in others' words. Ours, since neither tells: gamma and lam (both with
    lam = 0 and with "1.0" the paper reports lower success), the penalty as a part of r, so that it counts in V and
    for earlier steps, and the group's steps as the units of its mean and std.
    """
    check_discount("gamma", gamma)
    check_fraction("lam", lam)
    check_mode(mode)
    rollouts, size, r = earned.rollouts, process.num_anchors, earned.by_step()
    returns = discounted_sums(r, gamma, rollouts.remaining)
    V = sum_by(rollouts.anchor, returns, size) / process.anchor_count
    following = V[np.append(rollouts.anchor[1:], 0)]
    following[np.cumsum(rollouts.length) - 1] = 0.0
    delta = apart(r + gamma * following, V[rollouts.anchor], rounding_of(mode))
    advantage = discounted_sums(delta, gamma * lam, rollouts.remaining)
    group = rollouts.group[rollouts.rollout]
    return normalise(advantage, group, rollouts.num_groups, mode)
