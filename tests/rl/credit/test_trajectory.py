"""Trajectory-level advantages against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT
from strategies import group

from anchors import TransitionCounts
from crbc_rl import credit
from crbc_rl.credit.groups import centre, normalise

METHODS = ("grpo", "drgrpo", "rloo")
BARE = {"success_reward": 1.0, "invalid_penalty": 0.0}

FOUR = group("s:a s:a +", "s:a s:a s:a -", "s:a -", "s:a +")
"""Outcomes 1, 0, 0, 1 over 2, 3, 1, 1 steps."""
PENALISED = group("s:a +", "s:<invalid> s:<invalid> -", "s:a s:<invalid> -")
"""Returns 10, -0.2 and -0.1."""


def per_rollout(group, method, **config):
    """One value per rollout, after checking that its steps share it."""
    values = credit.advantages(group, method, **config)
    assert all((v == v[0]).all() for v in values)
    return [v[0] for v in values]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        # mean 1/2, sample variance 4 (1/2)^2 / 3 = 1/3
        ("grpo", 0.5 / (np.sqrt(1 / 3) + 1e-6)),
        ("drgrpo", 0.5),
        # 1 against the mean of the other three, 1/3
        ("rloo", 2 / 3),
    ],
)
def test_by_rollout_each_outcome_counts_once(method, expected):
    got = per_rollout(FOUR, method, **BARE)
    np.testing.assert_allclose(got, [expected, -expected, -expected, expected], **TIGHT)


@pytest.mark.parametrize(
    ("method", "expected"),
    [("drgrpo", [10 - 9.7 / 3, -0.2 - 9.7 / 3, -0.1 - 9.7 / 3]), ("rloo", [10.15, -0.2 - 4.95, -0.1 - 4.9])],
)
def test_the_penalty_is_charged_per_malformed_reply(method, expected):
    np.testing.assert_allclose(per_rollout(PENALISED, method), expected, **TIGHT)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("reward", "malformed"), [(0.3, 1), (0.3, 8), (0.7, 3), (0.7, 11), (0.2, 10)])
def test_equal_returns_reached_in_different_ways_are_flat(method, reward, malformed):
    # A success with so many malformed replies more earns what the failure does, in tenths; in floats almost.
    more = malformed + round(10 * reward)
    earned = [-sum([0.1] * malformed), reward - sum([0.1] * more)]
    assert earned[0] != earned[1] and earned[0] == pytest.approx(earned[1], rel=1e-14)
    replies = [" ".join(["s:<invalid>"] * n) for n in (malformed, more)]
    spread = group(f"{replies[0]} -", f"{replies[1]} +", f"{replies[0]} s:a -")
    for values in credit.advantages(spread, method, success_reward=reward):
        assert not values.any()


def spread_of_equals():
    """Rows of a flat group that are equal in exact arithmetic and not in floats."""
    tenths = [0.1 + 0.2, 0.3, 0.3, 0.6 - 0.3, 3 * 0.1, 0.1 + 0.1 + 0.1]
    assert len(set(tenths)) > 1
    return np.array([*tenths, 5.0, *(1e6 * x for x in tenths)])


@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
@pytest.mark.parametrize("ddof", [0, 1])
def test_rounding_alone_is_no_deviation(mode, ddof):
    x = spread_of_equals()
    for order in (np.arange(13), np.arange(13)[::-1], np.random.default_rng(0).permutation(13)):
        of = np.repeat([0, 1, 3], [6, 1, 6])[order]
        assert not normalise(x[order], of, 4, mode, ddof).any()
        assert not normalise(-x[order], of, 4, mode, ddof).any()
    n, deviation = centre(x, np.repeat([0, 1, 3], [6, 1, 6]), 4)
    assert n.tolist() == [6, 1, 0, 6]
    assert not deviation.any()


def test_a_deviation_that_is_small_and_no_rounding_is_kept():
    x = np.array([1.0, 1.0 + 1e-9, 2.0, 2.0])
    deviation = centre(x, np.array([0, 0, 1, 1]), 2)[1]
    np.testing.assert_allclose(deviation, [-5e-10, 5e-10, 0, 0], rtol=1e-6)
    assert normalise(x, np.array([0, 0, 1, 1]), 2, "mean_norm")[1] > 0


@pytest.mark.parametrize("method", [*METHODS, "crbc"])
def test_advantages_cannot_be_told_from_counts(method):
    process = TransitionCounts.from_rollouts(FOUR.rollouts).process()
    with pytest.raises(ValueError, match="advantages need rollouts"):
        credit.METHODS[method](process)
