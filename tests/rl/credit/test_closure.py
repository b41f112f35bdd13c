"""The Bellman closure and its finite-depth family: closed forms, options, step credit."""

from __future__ import annotations

import numpy as np
import pytest
from closures import STITCHED, assert_close, solved
from hypothesis import given
from hypothesis import strategies as st
from strategies import betas, group, groups

from anchors import EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_rl import credit

# ---- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.5, 0.98, 1.0])
def test_a_self_loop_has_its_closed_form(beta):
    V, Q = solved(group("s:a s:a s:a +"), beta)
    assert V["s"] == pytest.approx(beta / (3 - 2 * beta), abs=1e-12)
    assert Q["s", "a"] == pytest.approx(V["s"], abs=1e-12)


@pytest.mark.parametrize("beta", [0.5, 0.98, 1.0])
def test_success_evidence_is_stitched_across_rollouts(beta):
    V, Q = solved(STITCHED, beta)
    assert_close(V, {"m": beta / 2, "u": beta**2 / 2, "s": (beta**2 / 2 + beta**3 / 2) / 2})
    assert Q["s", "a"] == pytest.approx(beta**2 / 2, abs=1e-12)  # its own rollout failed
    assert Q["s", "b"] == pytest.approx(beta**3 / 2, abs=1e-12)
    assert Q["m", "c"] == 0
    assert Q["m", "e"] == pytest.approx(beta, abs=1e-12)


def test_each_depth_stitches_one_edge_further():
    beta = 0.9
    V0, Q0 = solved(STITCHED, beta, 0)
    assert_close(V0, {"m": beta / 2, "u": beta**2, "s": beta**3 / 2})
    assert (Q0["s", "a"], Q0["s", "b"]) == pytest.approx((0, beta**3), abs=1e-12)
    V1, Q1 = solved(STITCHED, beta, 1)
    assert (Q1["s", "a"], Q1["s", "b"]) == pytest.approx((beta**2 / 2, beta**3), abs=1e-12)
    assert V1["u"] == pytest.approx(beta**2 / 2, abs=1e-12)
    assert solved(STITCHED, beta, 2) == solved(STITCHED, beta, 7)
    _, Q2 = solved(STITCHED, beta, 2)
    assert Q2["s", "b"] == pytest.approx(beta**3 / 2, abs=1e-12)


@pytest.mark.parametrize("depth", [None, 0, 1, 5])
def test_a_group_of_failures_has_exactly_zero_values_and_credit(depth):
    failures = group("s:a m:b s:c -", "s:b s:b m:a -")
    result = credit.closure(EmpiricalProcess.from_group(failures), depth=depth)
    for values in (result.V, result.Q, result.A, result.sigma):
        assert values.dtype == np.float64
        assert not values.any()


def test_beta_one_gives_success_fractions():
    V, Q = solved(group("s:a m:c +", "s:a m:d -", "s:b u:c -", "s:a m:c +"), beta=1.0)
    assert_close(V, {"s": 1 / 2, "m": 2 / 3, "u": 0})
    assert Q["s", "a"] == pytest.approx(2 / 3, abs=1e-12)


def test_a_truncation_is_a_failure():
    steps = [Step("s", "a"), Step("m", "b")]
    cut, failed = (RolloutGroup([Rollout(steps, False, truncated=t), Rollout(steps, True)]) for t in (True, False))
    assert solved(cut) == solved(failed)


# ---- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, -0.5, 1.0001, float("nan"), float("inf")])
def test_beta_outside_its_range_is_refused(beta):
    with pytest.raises(credit.CreditError, match=r"beta must lie in \(0, 1\]"):
        credit.closure(EmpiricalProcess.from_group(STITCHED), beta)


@pytest.mark.parametrize("depth", [-1, 1.0, True, "1"], ids=repr)
def test_a_depth_that_is_no_whole_number_is_refused(depth):
    with pytest.raises(credit.CreditError, match="depth must be None"):
        credit.closure(EmpiricalProcess.from_group(STITCHED), depth=depth)


@pytest.mark.parametrize("sigma_min", [0.0, -1.0, float("nan")])
def test_sigma_min_must_be_positive(sigma_min):
    with pytest.raises(credit.CreditError, match="sigma_min must be positive"):
        credit.step_credit(EmpiricalProcess.from_group(STITCHED), sigma_min=sigma_min)


# ---- step credit ----------------------------------------------------------------------------------


@given(groups(), betas, st.sampled_from([None, 0, 2]), st.sampled_from([0.01, 0.1, 0.5]))
def test_step_credit_is_gated_and_floored(drawn, beta, depth, sigma_min):
    process = EmpiricalProcess.from_group(drawn)
    result = credit.closure(process, beta, depth)
    got = credit.step_credit(process, beta, depth, sigma_min)
    for pair, (s, _) in enumerate(process.pairs):
        here = [p for p, (other, _) in enumerate(process.pairs) if other == s]
        sigma = np.sqrt(sum(process.mu[p] * (result.Q[p] - result.V[s]) ** 2 for p in here))
        wanted = (result.Q[pair] - result.V[s]) / max(sigma, sigma_min) if len(here) > 1 else 0.0
        assert got[pair] == pytest.approx(wanted, rel=0, abs=1e-9)
        assert len(here) > 1 or got[pair] == 0


ONE_WAY = [
    group("s:a m:a +", "s:a m:a -", "s:a -"),
    group("s:a s:a s:a +"),
    group("s:a m:a +", "s:a m:a m:a +", "s:a u:b -"),
    group(" ".join(f"c{i}:a" for i in range(9)) + " +"),
]
"""Every anchor has one action, so that Q = V but for rounding: by more than nothing at some beta and depth."""


def test_one_action_at_an_anchor_earns_nothing_however_it_ends():
    rounded = 0
    for one_way in ONE_WAY:
        process = EmpiricalProcess.from_group(one_way)
        for beta in (0.7, 0.9, 0.98, 1.0):
            for depth in (None, 0, 1, 2):
                result = credit.closure(process, beta, depth)
                rounded += not np.array_equal(result.Q, result.V[process.pair_anchor])
                assert not result.A.any() and not result.sigma.any()
                assert not credit.step_credit(process, beta, depth, sigma_min=1e-15).any()
    assert rounded >= 5  # else nothing here would need a gate
