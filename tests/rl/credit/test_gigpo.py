"""GiGPO against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT
from strategies import group

from crbc_rl import credit

STEP = {"w_group": 0.0}


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


@pytest.mark.parametrize("method", ["gigpo", "hgpo"])
@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
def test_returns_that_differ_by_rounding_alone_are_flat(method, mode):
    # At s: 10 x 0.9 less a penalty of 0.9, and 10 x 0.9 x 0.9: both 8.1, in floats almost.
    assert 10 * np.float64(0.9) ** 2.0 != 10 * 0.9 - 0.9
    even = group("s:<invalid> m:a +", "s:a u:a w:a +")
    options = {"w_group": 0.0} if method == "gigpo" else {"history": 0}
    got = credit.advantages(even, method, gamma=0.9, invalid_penalty=0.9, mode=mode, **options)
    assert not np.concatenate(got).any()
