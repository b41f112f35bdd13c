"""The group's term A_G: one value per rollout, for all of its steps (section 3).

GRPO, Dr. GRPO and RLOO are this term alone.

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
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anchors import sum_by
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import centre, normalise
from crbc_rl.credit.rewards import Earned

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weighting = Literal["rollout", "step"]


def grpo(x: Floats, group: Ints) -> Floats:
    """GRPO: (x_i - mean) / (std + 1e-6) within the group (eq. 3; Shao et al. 2024).

    std is the sample standard deviation (n - 1), as in the public code derived from DeepSeekMath; the paper does not
    specify it. A group with equal returns, a group of one included, gets exact zeros.
    """
    return normalise(x, group, int(group[-1]) + 1, "mean_std_norm")


def drgrpo(x: Floats, group: Ints) -> Floats:
    """Dr. GRPO: x_i - mean, without the division by std (Liu et al. 2025)."""
    return normalise(x, group, int(group[-1]) + 1, "mean_norm")


def rloo(x: Floats, group: Ints) -> Floats:
    """RLOO: x_i minus the mean of the others = n / (n - 1) (x_i - mean) (Ahmadian et al. 2024).

    A group of one gets zero.
    """
    n, deviation = centre(x, group, int(group[-1]) + 1)
    return deviation * (n / np.maximum(n - 1, 1))[group]


GROUP_TERMS: dict[str, Callable[[Floats, Ints], Floats]] = {"grpo": grpo, "drgrpo": drgrpo, "rloo": rloo}


def group_term(name: str, earned: Earned, weighting: Weighting) -> Floats:
    """A_G by one of `GROUP_TERMS`, one value per step (n,)."""
    rollouts = earned.rollouts
    if weighting == "step":
        x = earned.by_rollout()[rollouts.rollout] - earned.penalties
        return GROUP_TERMS[name](x, rollouts.group[rollouts.rollout])
    x = earned.by_rollout() - sum_by(rollouts.rollout, earned.penalties, len(rollouts.length))
    return GROUP_TERMS[name](x, rollouts.group)[rollouts.rollout]


def check_weighting(weighting: str) -> None:
    if weighting not in get_args(Weighting):
        raise CreditError(f"weighting must be one of {', '.join(get_args(Weighting))}; got {weighting!r}")
