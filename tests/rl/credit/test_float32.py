"""Groups that are flat but for the rounding of float32, in which environments and reward models compute.

Divided by its own standard deviation, one unit in the last place would be an advantage like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import effort

from anchors import Rollout, RolloutGroup, Step
from crbc_rl import credit

SIZES = (1.0, 1000.0)
SMALL = 2e-5
"""The largest advantage, as a share of the reward: float32's last place, times CRBC's w_step over its least sigma."""

UNDISCOUNTED = {
    "gigpo": {"gamma": 1.0},
    "hgpo": {"gamma": 1.0},
    "g2po": {"gamma": 1.0},
    "rtmc": {"gamma": 1.0, "prior": 0.0},
    "gagpo": {"gamma": 1.0},
    "crbc": {"beta": 1.0},
    "crbc_plus": {"beta": 1.0},
    "graft": {"beta": 1.0},
}
"""Options under which a step's place in its rollout makes no difference."""


def normalisations(method: str) -> list[dict[str, Any]]:
    known = credit.METHODS[method].options
    found: list[dict[str, Any]] = [{}]
    if "mode" in known:
        found = [{"mode": mode} for mode in ("mean_std_norm", "mean_norm")]
    if "normalise" in known:
        found = [{"normalise": which} for which in ("anchor", "group", None)]
    if "group" in known:
        found = [{**options, "group": which} for options in found for which in ("grpo", "drgrpo", "rloo")]
    if "weighting" in known:
        found = [{**options, "weighting": which} for options in found for which in ("rollout", "step")]
    return found


def near_flat(size: float, seed: int, apart: bool = True) -> RolloutGroup:
    """Eight successes of one score and one reward; with `apart` some differ in the last place of a float32."""
    dice = np.random.default_rng(seed)

    def rounded(value: float) -> float:
        exact = np.float32(value)
        return float(np.nextafter(exact, np.float32(2 * value)) if apart and dice.random() < 0.5 else exact)

    rollouts = [
        Rollout(
            [Step("a", str(dice.integers(3))), Step("b", str(dice.integers(2)), reward=rounded(size / 3))],
            success=True,
            score=rounded(0.6),
        )
        for _ in range(8)
    ]
    return RolloutGroup(rollouts)


CASES = [
    (method, options, earns)
    for method in credit.METHODS
    for options in normalisations(method)
    for earns in ({"reward": "step"}, {"reward": "score"}, {"group_reward": "step"})
    if next(iter(earns)) in credit.METHODS[method].options
    and (method, earns.get("reward")) not in (("graphgpo", "step"), ("graphgpo", "score"), ("g2po", "step"))
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("method", "options", "earns"), CASES, ids=lambda value: value if isinstance(value, str) else repr(value)
)
def test_float32_s_rounding_is_no_advantage(
    method: str, options: dict[str, Any], earns: dict[str, str], size: float
) -> None:
    """What is left beside a group without that rounding is at most the rounding itself, not divided by its size."""
    settings = {**UNDISCOUNTED.get(method, {}), **options, **earns}
    if "success_reward" in credit.METHODS[method].options:
        settings["success_reward"] = size
    for seed in range(effort(1, full=3)):
        found = np.concatenate(credit.advantages(near_flat(size, seed), method, **settings))
        flat = np.concatenate(credit.advantages(near_flat(size, seed, apart=False), method, **settings))
        assert np.abs(found - flat).max() <= SMALL * max(size, 1.0), (found, flat)


@pytest.mark.parametrize("size", SIZES)
def test_a_critic_s_advantages_are_whitened_with_a_floor(size: float) -> None:
    rewards = np.array([near_flat(size, seed).rollouts[0].steps[1].reward for seed in range(20)])
    assert len(set(rewards.tolist())) == 2
    assert np.abs(credit.whiten(rewards)).max() <= 2e-3 * max(size, 1.0)
