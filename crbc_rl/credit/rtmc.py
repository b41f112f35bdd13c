"""RTMC: first-visit Monte Carlo values over the group's rollout tree (arXiv 2604.11037)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit.gigpo import step_returns
from crbc_rl.credit.groups import ROUNDING, check_discount, check_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def rtmc(
    process: EmpiricalProcess,
    *,
    gamma: float = 0.99,
    prior: float = 2.0,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
) -> Floats:
    """A = Q(s, a) - V'(s), one value per step in order.

    Q(s, a) and V(s) are means over rollouts of the return from the rollout's first visit to (s, a) and to s.
    V'(s) = (n V(s) + prior m) / (n + prior) shrinks V, known from n rollouts, towards the group's mean outcome
    m = success_reward mean(R). There is no normalisation and no trajectory-level term.

    Where the sources are silent, we chose: returns are GiGPO's `step_returns`, so the last step of a success is not
    discounted and a penalty affects its step only; m contains no penalty. The method's key is a signature of the whole
    history, which makes its states a tree; here the key is the anchor. An advantage that is only rounding is set to 0,
    as in a group of failures with well-formed replies.
    """
    check_discount("gamma", gamma)
    check_weights(prior=prior)
    (rollouts, pair), size = process.steps(), process.num_anchors
    returns = step_returns(rollouts, gamma, success_reward, invalid_penalty)
    Q, _ = _first_visit_means(pair, rollouts.rollout, returns, process.num_pairs)
    V, n = _first_visit_means(rollouts.anchor, rollouts.rollout, returns, size)
    members = np.bincount(rollouts.group)
    mean = success_reward * sum_by(rollouts.group, rollouts.success.astype(np.float64), len(members)) / members
    m = np.empty(size)
    m[rollouts.anchor] = mean[rollouts.group[rollouts.rollout]]
    shrunk = (n * V + prior * m) / (n + prior)
    baseline = shrunk[process.pair_anchor]
    A = Q - baseline
    A[np.abs(A) <= ROUNDING * np.maximum(np.abs(Q), np.abs(baseline))] = 0.0
    return A[pair]


def _first_visit_means(place: Ints, rollout: Ints, returns: Floats, size: int) -> tuple[Floats, Floats]:
    """The mean return from each rollout's first visit to each state of `place`, and the number of rollouts, (size,)."""
    _, first = np.unique(place * (int(rollout[-1]) + 1) + rollout, return_index=True)
    n = np.bincount(place[first], minlength=size).astype(np.float64)
    return sum_by(place[first], returns[first], size) / n, n
