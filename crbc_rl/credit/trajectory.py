"""Trajectory-level advantages: one value per rollout, broadcast to its steps (section 3).

The return of rollout i is x_i = success_reward R_i - invalid_penalty (number of malformed replies),
the paper's protocol ("Details of Training"); with `success_reward=1, invalid_penalty=0` it is the
bare R_i of eq. 3. With `reward="score"` the rollout's score replaces R_i. With `reward="step"` the sum of the
environment's own rewards, on their own scale, replaces success_reward R_i.

`weighting` selects the units of the group's statistics. "rollout" counts every rollout once, as in the paper. "step"
counts a rollout once per step, with the penalty on the malformed row only, as public trainers with one row per step
do. Long failures then have more weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import Mode, centre, check_finite, normalise
from crbc_rl.credit.rewards import Reward, check_reward, rollout_rewards

Floats = NDArray[np.float64]
Weighting = Literal["rollout", "step"]


def grpo(
    process: EmpiricalProcess,
    *,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: Weighting = "rollout",
    reward: Reward = "outcome",
) -> Floats:
    """GRPO: (x_i - mean) / (std + 1e-6) within the group (eq. 3; Shao et al. 2024).

    std is the sample standard deviation (n - 1), as in the public code derived from DeepSeekMath; the paper does not
    specify it. A group with equal returns, a group of one included, gets exact zeros.
    """
    x, group, expand = _returns(process, success_reward, invalid_penalty, weighting, reward)
    return expand(normalise(x, group, int(group[-1]) + 1, "mean_std_norm"))


def drgrpo(
    process: EmpiricalProcess,
    *,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: Weighting = "rollout",
    reward: Reward = "outcome",
) -> Floats:
    """Dr. GRPO: x_i - mean, without the division by std (Liu et al. 2025)."""
    x, group, expand = _returns(process, success_reward, invalid_penalty, weighting, reward)
    return expand(normalise(x, group, int(group[-1]) + 1, "mean_norm"))


def rloo(
    process: EmpiricalProcess,
    *,
    success_reward: float = 10.0,
    invalid_penalty: float = 0.1,
    weighting: Weighting = "rollout",
    reward: Reward = "outcome",
) -> Floats:
    """RLOO: x_i minus the mean of the others = n / (n - 1) (x_i - mean) (Ahmadian et al. 2024).

    A group of one gets zero.
    """
    x, group, expand = _returns(process, success_reward, invalid_penalty, weighting, reward)
    n, deviation = centre(x, group, int(group[-1]) + 1)
    return expand(deviation * (n / np.maximum(n - 1, 1))[group])


METHODS: dict[str, Callable[..., Floats]] = {"grpo": grpo, "drgrpo": drgrpo, "rloo": rloo}


def joined(
    process: EmpiricalProcess, step_term: Floats, w_group: float, method: str = "grpo", **options: Any
) -> Floats:
    """`step_term` + w_group A_G, with A_G by `method` of `METHODS` under `options`; changes `step_term`."""
    if w_group:
        step_term += w_group * METHODS[method](process, **options)
    return step_term


def episode(
    process: EmpiricalProcess,
    mode: Mode,
    success_reward: float,
    invalid_penalty: float,
    weighting: Weighting,
    reward: Reward = "outcome",
) -> Floats:
    """A_E, the trajectory-level term of the step-level methods: GRPO, or Dr. GRPO with "mean_norm"."""
    method = grpo if mode == "mean_std_norm" else drgrpo
    return method(
        process, success_reward=success_reward, invalid_penalty=invalid_penalty, weighting=weighting, reward=reward
    )


def _returns(
    process: EmpiricalProcess, success_reward: float, invalid_penalty: float, weighting: str, reward: Reward
) -> tuple[Floats, NDArray[np.int64], Callable[[Floats], Floats]]:
    """The returns x, the group of each, and a function that expands a value per return to the steps."""
    if weighting not in get_args(Weighting):
        raise CreditError(f"weighting must be one of {', '.join(get_args(Weighting))}; got {weighting!r}")
    check_finite(success_reward=success_reward, invalid_penalty=invalid_penalty)
    check_reward(reward)
    rollouts = process.steps()[0]
    outcome = rollout_rewards(rollouts, reward, success_reward)
    penalty: Floats = np.where(rollouts.valid, 0.0, invalid_penalty)
    if weighting == "step":
        return outcome[rollouts.rollout] - penalty, rollouts.group[rollouts.rollout], lambda x: x
    per_rollout = outcome - sum_by(rollouts.rollout, penalty, len(rollouts.length))
    return per_rollout, rollouts.group, lambda x: x[rollouts.rollout]
