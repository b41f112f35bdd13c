"""G2PO: differences of visit-mean values along the edges of the group's graph (arXiv 2606.22995)."""

from __future__ import annotations

import numpy as np

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Floats, Mode, apart, check_discount, check_mode, normalise, rounding_of
from crbc_rl.credit.rewards import Earned, ending, suffix_returns


@estimator(w_group=1.0, rewards=("outcome", "score"), on_success=True)
def g2po(process: EmpiricalProcess, earned: Earned, *, gamma: float = 0.95, mode: Mode = "mean_std_norm") -> Floats:
    """A_S = c_1 + c_2: how good the state is that the step led to, and the gain over the one before.

    V(s) is the mean of success_reward gamma^(T_i - t + 1) R_i over the visits to s, the paper's V_0
    scaled; V is `success_reward` at success and 0 at failure. For a step from s into x, c_1 normalises
    V(x), less the penalty where the reply was malformed, over the visits to s; c_2 normalises the gain
    V(x) - V(s) over all steps of the group. A_E is GRPO, or Dr. GRPO with "mean_norm", which drops the
    (sample) standard deviation everywhere and is the public code's default; the method as described
    standardises.

    With `reward="score"` the score replaces R_i, at the end too. Rewards per step have no place in the definition.

    An anchor visited once has c_1 = 0. A group of one step has c_2 = 0 (NaN in the public code). A group of failures
    with one malformed reply has c_2 = 0, and c_1 is nonzero at that anchor only. GRAFT (arXiv 2609.28963) computes the
    same gain from the closure's V instead of the visit means.
    """
    check_discount("gamma", gamma)
    check_mode(mode)
    rollouts, size = earned.rollouts, process.num_anchors
    totals = sum_by(rollouts.anchor, suffix_returns(rollouts, gamma, earned.reward), size)
    V = earned.success_reward * (totals / process.anchor_count)
    reached = V[np.append(rollouts.anchor[1:], 0)]
    reached[np.cumsum(rollouts.length) - 1] = earned.success_reward * ending(rollouts, earned.reward)
    edge = normalise(reached - earned.penalties, rollouts.anchor, size, mode)
    group = rollouts.group[rollouts.rollout]
    gain = normalise(apart(reached, V[rollouts.anchor], rounding_of(mode)), group, int(group[-1]) + 1, mode)
    return edge + gain
