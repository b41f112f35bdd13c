"""Generalised advantage estimation against its recursion and against known special cases."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT
from hypothesis import given
from hypothesis import strategies as st
from strategies import group

from anchors import EmpiricalProcess
from crbc_rl import credit

seeds = st.integers(0, 2**32 - 1)


def sequences(seed, most=40):
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 12, size=rng.integers(1, most))
    return rng.normal(size=length.sum()), rng.normal(size=length.sum()), length


def naive(reward, value, length, gamma, lam):
    out, end = np.zeros(len(reward)), 0
    for n in length:
        start, end = end, end + int(n)
        after, following = 0.0, 0.0
        for t in reversed(range(start, end)):
            after = reward[t] + gamma * following - value[t] + gamma * lam * after
            out[t], following = after, value[t]
    return out


@given(seeds, st.sampled_from([1.0, 0.99, 0.5]), st.sampled_from([1.0, 0.95, 0.0]))
def test_it_is_the_recursion_of_every_sequence(seed, gamma, lam):
    reward, value, length = sequences(seed)
    advantage, returns = credit.gae(reward, value, length, gamma, lam)
    np.testing.assert_allclose(advantage, naive(reward, value, length, gamma, lam), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(returns, advantage + value, **TIGHT)


def test_two_sequences_by_hand():
    # gamma 1/2, lam 1/2; the first: deltas 1 + 2/2 - 4 = -2 and 3 - 2 = 1, then -2 + 1/4.
    advantage, returns = credit.gae([1, 3, 5], [4, 2, 1], [2, 1], gamma=0.5, lam=0.5)
    np.testing.assert_allclose(advantage, [-1.75, 1, 4], **TIGHT)
    np.testing.assert_allclose(returns, [2.25, 3, 5], **TIGHT)


def test_ppo_rewards_every_row_with_its_outcome_and_its_own_penalty():
    process = EmpiricalProcess.from_group(group("s:a s:<invalid> +", "s:a -", "s:<invalid> -"))
    np.testing.assert_allclose(credit.row_rewards(process), [10, 9.9, 0, -0.1], **TIGHT)


def test_whitened_advantages_have_mean_zero_and_sample_variance_one():
    np.testing.assert_allclose(credit.whiten([1.0, 2.0, 3.0]), np.array([-1, 0, 1]) / np.sqrt(1 + 1e-8), **TIGHT)
    assert not credit.whiten([0.1] * 7).any()
    assert not credit.whiten([5.0]).any()
    assert credit.whiten([]).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0, 2.0], [1]), "must be one row"),
        (([[1.0]], [[1.0]], [1]), "must be one row"),
        (([1.0], [1.0], [1.0]), "length integers"),
        (([1.0], [1.0], [2]), "length must hold positive integers that sum to 1, got a sum of 2"),
        (([1.0], [1.0], [1, 0]), "length must hold positive integers"),
        (([], [], np.zeros(0, dtype=int)), "length must hold positive integers"),
        (([1.0, 1.0], [np.nan, 1.0], [1, 1]), "reward and value must be finite"),
        (([1.0, np.inf], [1.0, 1.0], [1, 1]), "reward and value must be finite"),
        (([1.0], [1.0], [1], 0.0), r"gamma must lie in \(0, 1\]"),
        (([1.0], [1.0], [1], 1.0, 1.5), r"lam must lie in \[0, 1\], got 1.5"),
    ],
)
def test_shapes_and_options_out_of_range_are_refused(arguments, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.gae(*arguments)
