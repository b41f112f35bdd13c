"""GiGPO against numbers worked out by hand and against the definition, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from naive import MODES, TIGHT, agrees, by_key, episode, listed, step_at, step_returns
from strategies import group

from crbc_rl import credit

STEP = {"w_group": 0.0}


def naive(group, mode="mean_std_norm", gamma=0.95, w_group=1.0, w_step=1.0):
    step = by_key(step_returns(group, gamma), lambda row: step_at(group, row).anchor, mode)
    whole = episode(group, mode)
    return listed(group, lambda row: w_group * whole[row[0]] + w_step * step[row])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options", [{}, {"gamma": 0.5, "w_step": 3.0}, {"w_group": 0.0}, {"gamma": 1.0, "w_group": 2.0}]
)
def test_it_is_the_definition_row_by_row(mode, options):
    agrees(naive, "gigpo", mode=mode, **options)


def test_two_visits_by_hand():
    # At s the returns are 10 gamma = 5 and 0; at m alone 10. Sample std of 5 and 0 is 5 / sqrt(2).
    hand = group("s:a m:b +", "s:b -")
    got = credit.advantages(hand, "gigpo", gamma=0.5, mode="mean_norm", **STEP)
    np.testing.assert_allclose(np.concatenate(got), [2.5, 0, -2.5], **TIGHT)
    got = credit.advantages(hand, "gigpo", gamma=0.5, **STEP)
    z = 2.5 / (5 / np.sqrt(2) + 1e-6)
    np.testing.assert_allclose(np.concatenate(got), [z, 0, -z], **TIGHT)
    # With the trajectory term: 10 and 0, Dr. GRPO 5 and -5.
    got = credit.advantages(hand, "gigpo", gamma=0.5, mode="mean_norm", w_step=2.0)
    np.testing.assert_allclose(np.concatenate(got), [10, 5, -10], **TIGHT)


def test_the_last_step_of_a_success_is_not_discounted():
    got = credit.advantages(group("s:a s:a s:b +"), "gigpo", gamma=0.5, mode="mean_norm", **STEP)
    np.testing.assert_allclose(got[0], np.array([2.5, 5, 10]) - 17.5 / 3, **TIGHT)


def test_the_penalty_stays_with_the_malformed_step():
    got = credit.advantages(group("s:a s:<invalid> m:a -", "s:a -"), "gigpo", mode="mean_norm", **STEP)
    np.testing.assert_allclose(np.concatenate(got), [0.1 / 3, -0.2 / 3, 0, 0.1 / 3], **TIGHT)


@pytest.mark.parametrize("method", ["gigpo", "hgpo"])
@pytest.mark.parametrize("mode", MODES)
def test_returns_that_differ_by_rounding_alone_are_flat(method, mode):
    # At s: 10 x 0.9 less a penalty of 0.9, and 10 x 0.9 x 0.9: both 8.1, in floats almost.
    assert 10 * np.float64(0.9) ** 2.0 != 10 * 0.9 - 0.9
    even = group("s:<invalid> m:a +", "s:a u:a w:a +")
    options = {"w_group": 0.0} if method == "gigpo" else {"history": 0}
    got = credit.advantages(even, method, gamma=0.9, invalid_penalty=0.9, mode=mode, **options)
    assert not np.concatenate(got).any()


def test_one_malformed_reply_among_failures_weighs_as_documented():
    # Under mean_std_norm n - 1 zeros and one -0.1 give -(n - 1)/sqrt(n) and 1/sqrt(n), but for epsilon.
    n = 9
    got = np.concatenate(credit.advantages(group("s:<invalid> -", *["s:a -"] * (n - 1)), "gigpo", **STEP))
    std = 0.1 / np.sqrt(n) + 1e-6
    np.testing.assert_allclose(got, [-0.1 * (n - 1) / n / std, *[0.1 / n / std] * (n - 1)], **TIGHT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, r"gamma must lie in \(0, 1\], got 0.0"),
        ({"gamma": 1.1}, "gamma must lie in"),
        ({"mode": "std"}, "mode must be one of mean_std_norm, mean_norm; got 'std'"),
        ({"w_step": -1.0}, "w_group and w_step must be finite and >= 0, got 1.0 and -1.0"),
        ({"weighting": "token"}, "weighting must be one of rollout, step"),
        ({"omega": 1.0}, "gigpo has no option 'omega'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "gigpo", **options)
