"""RTMC: first-visit Monte Carlo values over the group's rollout tree (arXiv 2604.11037)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from anchors import EmpiricalProcess, sum_by
from anchors.columns import Floats, Ints
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import EPSILON, Mode, apart, centre, check_discount, check_mode, check_weights, spread
from crbc_rl.credit.rewards import Earned


@estimator()
def rtmc(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    gamma: float = 0.99,
    prior: float = 2.0,
    pooling: Literal["state", "pair"] = "state",
    mode: Mode = "mean_norm",
) -> Floats:
    """A = Q(s, a) - V'(s), one value per step in order.

    Q(s, a) and V(s) are means over rollouts of the return from the rollout's first visit to (s, a) and to s.
    V'(s) = (n V(s) + prior m) / (n + prior) shrinks V, known from n rollouts, towards the group's mean outcome
    m = success_reward mean(R). The method has no trajectory-level term.

    The method as described pools V over first visits to s, and does not normalise. The third-party port pools it over
    first visits to the pairs of s: `pooling="pair"`, where a rollout counts once for each action it took at s. It also
    divides by the group's deviation: `mode="mean_std_norm"`, here the sample standard deviation of the group's
    outcomes, as in GRPO; a group of equal outcomes gets zeros, as there.

    Where the sources are silent, we chose: returns are GiGPO's, so the last step of a success is not
    discounted and a penalty affects its step only; m contains no penalty. The method's key is a signature of the whole
    history, which makes its states a tree; here the key is the anchor. An advantage that is only rounding is set to 0,
    as in a group of failures with well-formed replies.
    """
    check_discount("gamma", gamma)
    check_weights(prior=prior)
    check_mode(mode)
    if pooling not in ("state", "pair"):
        raise CreditError(f"pooling must be state or pair, got {pooling!r}")
    (rollouts, pair), size = process.steps(), process.num_anchors
    returns = earned.returns(gamma)
    Q, visits = _first_visits(pair, rollouts.rollout, returns, process.num_pairs)
    if pooling == "state":
        V, n = _first_visits(rollouts.anchor, rollouts.rollout, returns, size)
    else:
        n = sum_by(process.pair_anchor, visits, size)
        V = sum_by(process.pair_anchor, visits * Q, size) / n
    outcome = earned.by_rollout()
    members, deviation = centre(outcome, rollouts.group, rollouts.num_groups)
    group = process.anchor_group
    m = (sum_by(rollouts.group, outcome, rollouts.num_groups) / members)[group]
    baseline = ((n * V + prior * m) / (n + prior))[process.pair_anchor]
    A = apart(Q, baseline)
    if mode == "mean_std_norm":
        std = spread(outcome, deviation, rollouts.group, rollouts.num_groups)[group][process.pair_anchor]
        A = np.where(std > 0.0, A / (std + EPSILON), 0.0)
    return A[pair]


def _first_visits(place: Ints, rollout: Ints, returns: Floats, size: int) -> tuple[Floats, Floats]:
    """The mean return from each rollout's first visit to each state of `place`, and the number of rollouts, (size,)."""
    _, first = np.unique(place * (int(rollout[-1]) + 1) + rollout, return_index=True)
    n = np.bincount(place[first], minlength=size).astype(np.float64)
    return sum_by(place[first], returns[first], size) / n, n
