"""What a step earns: the rollout's outcome, its score, or the environment's own rewards.

With the first two only a rollout's last step earns. The closure is linear in what steps earn, V = beta (r + M V), so
all three are one system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anchors import InternedRollouts, sum_by
from anchors.columns import Floats, Ints
from crbc_rl.credit.errors import CreditError

Reward = Literal["outcome", "score", "step"]


def check_reward(reward: str, allowed: tuple[str, ...] = get_args(Reward)) -> None:
    """Raise `CreditError` for a kind of reward that a method has no definition for."""
    if reward not in allowed:
        raise CreditError(f"reward must be {' or '.join(repr(kind) for kind in allowed)} here, got {reward!r}")


def ending(rollouts: InternedRollouts, reward: Reward, leads_on: bool = False) -> Floats:
    """What each rollout earns at its end, (m,): R_i or its score. With `leads_on` a rollout that `goes_on` has no
    score, since it was not finished. Raises `CreditError` for a score outside [0, 1], and another kind of `reward`."""
    check_reward(reward)
    if reward == "outcome":
        return rollouts.success.astype(np.float64)
    beyond = ~((rollouts.score >= 0.0) & (rollouts.score <= 1.0))
    if beyond.any():
        i = int(np.argmax(beyond))
        raise CreditError(f"rollout {i}: a score lies in [0, 1], got {rollouts.score[i]}")
    return np.where(rollouts.goes_on, 0.0, rollouts.score) if leads_on else rollouts.score


def step_rewards(
    rollouts: InternedRollouts, reward: Reward, leads_on: bool = False, invalid_cost: float = 0.0
) -> Floats:
    """What each step earns, (n,), with `leads_on` as in `ending`; an invalid reply costs `invalid_cost`. Raises
    `CreditError` for rewards that are not finite."""
    if invalid_cost:
        return step_rewards(rollouts, reward, leads_on) - np.where(rollouts.valid, 0.0, invalid_cost)
    if reward == "step":
        odd = ~np.isfinite(rollouts.reward)
        if odd.any():
            row = int(np.argmax(odd))
            raise CreditError(f"{rollouts.where(row)}: a reward is a finite number, got {rollouts.reward[row]}")
        return rollouts.reward
    earned = np.zeros(len(rollouts.rollout))
    earned[np.cumsum(rollouts.length) - 1] = ending(rollouts, reward, leads_on)
    return earned


def rollout_rewards(rollouts: InternedRollouts, reward: Reward, success_reward: float) -> Floats:
    """What each rollout earns in all, (m,): `success_reward` times R_i or its score, or the sum of its step rewards,
    which have their own scale."""
    if reward == "step":
        return sum_by(rollouts.rollout, step_rewards(rollouts, reward), len(rollouts.length))
    return success_reward * ending(rollouts, reward)


@dataclass(frozen=True, slots=True, eq=False)
class Earned:
    """What the n steps of m `rollouts` earn by the options of whoever asks for credit.

    `reward` is what earns: "outcome" (R_i at the end, times `success_reward`), "score" (the rollout's, in its place) or
    "step" (the environment's own, as they are). `invalid_penalty` is what a malformed reply costs at its own step. How
    they enter a step's term is the estimator's business. The methods raise `CreditError` for a score outside [0, 1].
    """

    rollouts: InternedRollouts
    reward: Reward = "outcome"
    success_reward: float = 10.0
    invalid_penalty: float = 0.1

    def of(self, reward: Reward) -> Earned:
        """The same, of another kind of `reward`."""
        return replace(self, reward=reward)

    @property
    def penalties(self) -> Floats:
        """What each step's reply costs, (n,): the penalty where it was malformed."""
        return np.where(self.rollouts.valid, 0.0, self.invalid_penalty)

    def by_step(self) -> Floats:
        """What each step earns, (n,), its penalty included. The environment's own rewards have their own scale."""
        scale = 1.0 if self.reward == "step" else self.success_reward
        return scale * step_rewards(self.rollouts, self.reward) - self.penalties

    def by_rollout(self) -> Floats:
        """What each rollout earns in all, (m,), without penalties."""
        return rollout_rewards(self.rollouts, self.reward, self.success_reward)

    def returns(self, gamma: float) -> Floats:
        """`gamma`^(T_i - t) success_reward R_i, minus the penalty where the step's own reply was malformed, (n,).

        The last step of a success gets the undiscounted reward, one factor of gamma less than the paper's G_(i,t). A
        penalty does not affect earlier steps. These are verl-agent's conventions. `reward="score"` puts the rollout's
        score in place of R_i; `reward="step"` is sum_k gamma^k r_(t+k) of the environment's own rewards.
        """
        returns = suffix_returns(self.rollouts, gamma, self.reward, first=0)
        if self.reward != "step":
            returns *= self.success_reward
        returns -= self.penalties
        return returns


def suffix_returns(
    rollouts: InternedRollouts,
    discount: float | Floats,
    reward: Reward = "outcome",
    first: int = 1,
    leads_on: bool = False,
    invalid_cost: float = 0.0,
) -> Floats:
    """G_(i,t) = sum over k >= 0 of discount^(k + first) r_(i,t+k) for every step, (n,).

    With `first=1` and the outcome this is the paper's beta^(T_i - t + 1) R_i (section 3). With `first=0` a reward is
    not discounted at the step that earns it. `discount` may be one number per group. `leads_on` and `invalid_cost` are
    as in `step_rewards`.
    """
    by_step = np.asarray(discount)
    if by_step.ndim:
        by_step = by_step[rollouts.group][rollouts.rollout]
    if reward == "step" or invalid_cost:
        each = step_rewards(rollouts, reward, leads_on, invalid_cost)
        return powers(by_step, first) * discounted_sums(each, by_step, rollouts.remaining)
    earned: Floats = ending(rollouts, reward, leads_on)[rollouts.rollout]
    earned *= powers(by_step, rollouts.remaining - 1 + first)
    return earned


def discounted_sums(reward: Floats, discount: float | Floats, remaining: NDArray[np.int64]) -> Floats:
    """S_t = r_t + discount S_(t+1) within each rollout, (n,); `discount` is one number, or one per step.

    It is computed for all rollouts together, from their ends.
    """
    total, factor = reward.copy(), np.broadcast_to(discount, reward.shape)
    order = np.argsort(remaining, kind="stable")
    ends = np.cumsum(np.bincount(remaining))
    for k in range(2, len(ends)):
        rows = order[ends[k - 1] : ends[k]]
        total[rows] += factor[rows] * total[rows + 1]
    return total


def powers(base: float | Floats, exponent: int | Ints) -> Floats:
    """base ** exponent for whole exponents >= 0, broadcast; bases are at most 1.

    Each power is the C library's, rounded as if exact. That of NumPy is another one on processors with AVX-512, and
    differs in the last bit, so one seed would give other credit on another machine.
    """
    one = np.ndim(base) == 0
    bases, which = ([float(base)], 0) if one else np.unique(base, return_inverse=True)
    exponents = range(int(np.max(exponent, initial=0)) + 1)
    table = np.array([[float(each) ** k for k in exponents] for each in bases])
    return np.asarray(table[which, exponent])
