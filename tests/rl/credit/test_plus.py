"""CRBC's options beyond the paper: a cycle of cuts, beta="auto", the preset; test_rational.py holds the rest."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from closures import TIGHT, solved
from strategies import group

from anchors import EmpiricalProcess, TransitionCounts
from crbc_rl import credit
from crbc_rl.credit.crbc import crbc_plus

CUT = group("s:a m:c +", "s:b ~m", "s:b m:d -")
"""Rollout 1 is cut at m, which the others left: once to success, once to failure."""


@pytest.mark.parametrize("beta", [0.5, 0.98, 1.0, "auto"])
def test_a_cycle_that_everybody_is_cut_in_is_worth_nothing(beta):
    # At u the only rollout goes round until it is cut there; from s one rollout succeeds.
    V, Q = solved(group("s:a +", "s:b u:c u:c ~u"), beta=beta, truncation="successor")
    assert V["u"] == Q["u", "c"] == Q["s", "b"] == 0.0
    assert V["s"] > 0.0


@pytest.mark.parametrize(
    ("members", "beta"),
    [
        (group("s:a m:c u:d +", "s:b m:c u:d v:e u:d +", "s:b -"), 1 - Fraction(1, 4)),  # successes of 3 and 5 steps
        (group("s:a +", "s:b -"), Fraction(1, 2)),  # at least two steps, or one success would be worth nothing
        (group("s:a -", "s:b m:c -"), Fraction(98, 100)),  # without a success
    ],
)
def test_auto_is_one_minus_one_over_the_length_of_successes(members, beta):
    process = EmpiricalProcess.from_group(members)
    for depth in (None, 0, 2):
        auto, told = credit.closure(process, "auto", depth), credit.closure(process, float(beta), depth)
        np.testing.assert_allclose(auto.V, told.V, **TIGHT)
        np.testing.assert_allclose(auto.Q, told.Q, **TIGHT)


def test_auto_needs_rollouts():
    counts = TransitionCounts.from_rollouts(CUT.rollouts)
    with pytest.raises(ValueError, match="rollouts"):
        credit.closure(counts.process(), "auto")


# ---- the preset, and what is refused ----------------------------------------------------------------


def test_crbc_plus_is_crbc_with_other_defaults():
    plus = credit.advantages(CUT, "crbc_plus")
    same = credit.advantages(CUT, "crbc", **crbc_plus.options)
    paper = {"truncation": "failure", "sigma_min": 0.1, "w_group": 1.0, "horizon": None}
    back = credit.advantages(CUT, "crbc_plus", **paper)
    np.testing.assert_array_equal(np.concatenate(plus), np.concatenate(same))
    np.testing.assert_array_equal(np.concatenate(back), np.concatenate(credit.advantages(CUT)))
    assert not np.array_equal(np.concatenate(plus), np.concatenate(back))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"truncation": "cut"}, "truncation must be one of failure, successor"),
        ({"horizon": 0}, 'horizon must be None, "auto" or an integer >= 1, got 0'),
        ({"horizon": 1}, "horizon must be at least the length of every rollout, got 1; one has 2"),
        ({"horizon": 2.0}, 'horizon must be None, "auto" or an integer'),
        ({"horizon": 5, "depth": 1}, "depth and horizon are two ways"),
        ({"normalise": "step"}, "normalise must be anchor, group or None"),
        ({"beta": "self"}, r"beta must lie in \(0, 1\], got 'self'"),
        ({"beta": True, "depth": True}, r"beta must lie in \(0, 1\], got True"),
        ({"depth": True}, "depth must be None"),
        ({"reward": "steps"}, "reward must be 'outcome' or 'score' or 'step'"),
    ],
)
def test_options_out_of_range(options, said):
    with pytest.raises(credit.CreditError, match=said):
        credit.advantages(CUT, **options)


@pytest.mark.parametrize("method", [name for name in credit.METHODS if name != "scores"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "10"])
@pytest.mark.parametrize("name", ["success_reward", "invalid_penalty"])
def test_numbers_must_be_finite(method, name, value):
    with pytest.raises(credit.CreditError, match=f"{name} must be a finite number, got"):
        credit.advantages(CUT, method, **{name: value})
