"""Generalised advantage estimation for PPO's critic (Schulman et al. 2016, eq. 16)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from anchors import EmpiricalProcess
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import Floats, check_discount
from crbc_rl.credit.rewards import Reward, rollout_rewards


def gae(
    reward: ArrayLike, value: ArrayLike, length: ArrayLike, gamma: float = 1.0, lam: float = 1.0
) -> tuple[Floats, Floats]:
    """Advantages A and returns A + value of sequences laid end to end, both (n,).

    `reward` and `value` are (n,), in order. `length` (m,) has the lengths of the sequences and sums to n. With
    delta_t = r_t + gamma v_(t+1) - v_t, A_t = delta_t + gamma lam A_(t+1). The value after a sequence's end is 0,
    so a truncation is treated as an end. `gamma` lies in (0, 1], `lam` in [0, 1].

    A sequence is a rollout with one value per step, or one environment step with one value per token. The paper says of
    its PPO baseline that it uses GAE. The second reading, with gamma = lam = 1, `row_rewards` on the last token and
    advantages that `whiten` whitens, is verl-agent's. Raises `CreditError` for shapes and options out of range, and for
    what is not finite.
    """
    from scipy.linalg import solve_banded

    check_discount("gamma", gamma)
    if not 0.0 <= lam <= 1.0:
        raise CreditError(f"lam must lie in [0, 1], got {lam!r}")
    r, v, n = np.asarray(reward, np.float64), np.asarray(value, np.float64), np.asarray(length)
    if r.ndim != 1 or r.shape != v.shape or n.ndim != 1 or n.dtype.kind not in "iu":
        raise CreditError(f"reward {r.shape} and value {v.shape} must be one row, and length integers")
    if not n.size or n.min() < 1 or n.sum() != len(r):
        raise CreditError(f"length must hold positive integers that sum to {len(r)}, got a sum of {n.sum()}")
    if not np.isfinite([r, v]).all():  # one would spread through the system into other sequences
        raise CreditError("reward and value must be finite")
    follows = np.ones(len(r))
    follows[np.cumsum(n) - 1] = 0.0
    delta = r + gamma * follows * np.append(v[1:], 0.0) - v
    # A_t - gamma lam A_(t+1) = delta_t within each sequence: one bidiagonal system for all of them.
    bands = np.ones((2, len(r)))
    bands[0, 1:] = -gamma * lam * follows[:-1]
    advantage: Floats = solve_banded((0, 1), bands, delta, overwrite_ab=True, check_finite=False)
    returns: Floats = advantage + v
    return advantage, returns


def row_rewards(
    process: EmpiricalProcess, success_reward: float = 10.0, invalid_penalty: float = 0.1, reward: Reward = "outcome"
) -> Floats:
    """`success_reward` R_i, less `invalid_penalty` where the reply was malformed: what PPO's last token of every
    environment step of `process` earns, (n,) in order. With `reward="step"` the sum of the environment's own rewards
    over the whole episode replaces success_reward R_i; with "score" the rollout's score replaces R_i. No value is
    carried between steps. Raises `CreditError` for a score outside [0, 1] and a reward that is not finite."""
    rollouts = process.steps()[0]
    earned = rollout_rewards(rollouts, reward, success_reward)[rollouts.rollout]
    return earned - np.where(rollouts.valid, 0.0, invalid_penalty)


def whiten(advantage: ArrayLike) -> Floats:
    """(A - mean) / sqrt(sample variance + 1e-8) over all values A of `advantage`, as PPO trainers do, in its own shape;
    zeros where all are equal."""
    values = np.asarray(advantage, np.float64)
    if values.size < 2 or (values == values.flat[0]).all():
        return np.zeros_like(values)
    whitened: Floats = (values - values.mean()) / np.sqrt(values.var(ddof=1) + 1e-8)
    return whitened
