"""RTMC against numbers worked out by hand and against the definition, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive import TIGHT, agrees, listed, places, step_at, step_returns
from strategies import group

from crbc_rl import credit


def naive(group, gamma=0.99, prior=2.0):
    returns = step_returns(group, gamma)

    def first_visits(key):
        found = {}
        for row in places(group):
            found.setdefault(key(step_at(group, row)), {}).setdefault(row[0], returns[row])
        return {place: list(some.values()) for place, some in found.items()}

    Q = {k: math.fsum(some) / len(some) for k, some in first_visits(lambda s: (s.anchor, s.action)).items()}
    V = first_visits(lambda s: s.anchor)
    m = 10.0 * group.success_rate

    def value(row):
        step = step_at(group, row)
        some = V[step.anchor]
        return Q[step.anchor, step.action] - (math.fsum(some) + prior * m) / (len(some) + prior)

    return listed(group, value)


@pytest.mark.parametrize("options", [{}, {"gamma": 0.5}, {"prior": 0.0}, {"prior": 5.0, "gamma": 1.0}])
def test_it_is_the_definition_row_by_row(options):
    agrees(naive, "rtmc", **options)


def test_first_visits_by_hand():
    # gamma 1/2, m = 5. First returns from s: 2.5 and 0, so V' = (2.5 + 2 * 5) / 4 = 3.125; the second visit
    # of rollout 0 counts for (s, b) alone: Q(s, a) = 2.5, Q(s, b) = (5 + 0) / 2. At m: Q = 10, V' = 20 / 3.
    got = credit.advantages(group("s:a s:b m:c +", "s:b -"), "rtmc", gamma=0.5)
    np.testing.assert_allclose(np.concatenate(got), [-0.625, -0.625, 10 - 20 / 3, -0.625], **TIGHT)


def test_the_port_pools_over_pairs_and_divides():
    # gamma 1/2. First returns from the pairs of s: (s, a) 2.5, (s, b) 5 and 0. Pooled over pairs V(s) = 7.5 / 3 with
    # n = 3, so V' = (7.5 + 2 * 5) / 5 = 3.5. At m as before. The outcomes 10 and 0 have a deviation of sqrt(50).
    members = group("s:a s:b m:c +", "s:b -")
    got = credit.advantages(members, "rtmc", gamma=0.5, pooling="pair")
    np.testing.assert_allclose(np.concatenate(got), [-1.0, -1.0, 10 - 20 / 3, -1.0], **TIGHT)
    scaled = credit.advantages(members, "rtmc", gamma=0.5, pooling="pair", mode="mean_std_norm")
    np.testing.assert_allclose(np.concatenate(scaled), np.concatenate(got) / (math.sqrt(50) + 1e-6), **TIGHT)
    for flat in (group("s:a s:b +", "s:b +"), group("s:a m:b -", "s:<invalid> -")):
        assert not np.concatenate(credit.advantages(flat, "rtmc", mode="mean_std_norm")).any()
    with pytest.raises(credit.CreditError, match="pooling must be state or pair"):
        credit.advantages(members, "rtmc", pooling="action")


def test_without_a_prior_credit_is_q_minus_v():
    got = credit.advantages(group("s:a +", "s:b -"), "rtmc", prior=0)
    np.testing.assert_allclose(np.concatenate(got), [5, -5], **TIGHT)


@pytest.mark.parametrize(
    "flat",
    [
        group("s:a m:b -", "s:b -", "s:a s:a m:a -"),
        group(*["s:a +"] * 7),
        group(*["s:a +", "s:b +"] * 3),
        group("s:a +"),
        group("s:a m:b -"),
    ],
    ids=["all fail", "equal returns", "equal returns of two actions", "one success", "one failure"],
)
def test_a_flat_group_gets_exact_zeros(flat):
    assert not np.concatenate(credit.advantages(flat, "rtmc", success_reward=0.1)).any()


def test_the_prior_has_no_penalty_in_it():
    # At s: Q(invalid) = -0.1, Q(a) = 0, V' = (-0.1 + 0 + 2 * 0) / 4; at m nothing.
    got = credit.advantages(group("s:<invalid> m:a -", "s:a m:a -"), "rtmc")
    np.testing.assert_allclose(np.concatenate(got), [-0.075, 0, 0.025, 0], **TIGHT)
    # Alone: V' = -0.1 / 3.
    np.testing.assert_allclose(credit.advantages(group("s:<invalid> -"), "rtmc")[0], [-0.1 * 2 / 3], **TIGHT)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"gamma": 0.0}, "gamma must lie in"), ({"prior": -1.0}, "prior must be finite and >= 0, got -1.0")],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "rtmc", **options)
