"""HGPO against numbers worked out by hand and against the definition, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive import MODES, TIGHT, agrees, by_key, listed, places, step_at, step_returns
from strategies import group

from crbc_rl import credit


def naive(group, mode="mean_std_norm", gamma=0.95, history=2, alpha=1.0, first_weight=1.0):
    returns = step_returns(group, gamma)
    levels = []
    for k in range(1, history + 2):
        rows = {row: returns[row] for row in places(group) if row[1] + 1 >= k}

        def context(row, k=k):
            return tuple(step_at(group, (row[0], t)).anchor for t in range(row[1] - k + 1, row[1] + 1))

        levels.append(by_key(rows, context, mode, ddof=0))

    def value(row):
        heard = [((first_weight + k) ** alpha, level[row]) for k, level in enumerate(levels) if level.get(row)]
        return math.fsum(w * a for w, a in heard) / math.fsum(w for w, _ in heard) if heard else 0.0

    return listed(group, value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options", [{}, {"history": 0}, {"history": 4, "alpha": 2.0}, {"first_weight": 2.0, "gamma": 0.7}]
)
def test_it_is_the_definition_row_by_row(mode, options):
    agrees(naive, "hgpo", mode=mode, **options)


HAND = group("s:a m:b +", "s:b m:a -", "s:b u:a m:c -")
"""gamma 0.5. At s: 5, 0, 0. At m: 10, 0, 0, of which after s: 10 and 0; after u alone: 0. At u alone: 0."""


@pytest.mark.parametrize(("first_weight", "one", "two"), [(1.0, 1 / 3, 2 / 3), (2.0, 2 / 5, 3 / 5)])
def test_nested_groups_by_hand(first_weight, one, two):
    got = credit.advantages(HAND, "hgpo", gamma=0.5, history=1, mode="mean_norm", first_weight=first_weight)
    m = 10 / 3
    np.testing.assert_allclose(got[0], [5 - 5 / 3, one * (10 - m) + two * 5], **TIGHT)
    np.testing.assert_allclose(got[1], [-5 / 3, one * -m + two * -5], **TIGHT)
    # Alone in its longer context: the shorter one takes all the weight.
    np.testing.assert_allclose(got[2], [-5 / 3, 0, -m], **TIGHT)


def test_the_standard_deviation_is_the_population_s():
    got = credit.advantages(group("s:a +", "s:b -"), "hgpo", history=0)
    np.testing.assert_allclose(np.concatenate(got), np.array([5, -5]) / (5 + 1e-6), **TIGHT)


def test_a_context_reaches_no_further_than_its_rollout():
    # The second rollout's first step follows the first's last row; no level may link the two.
    apart = group("s:a m:a -", "s:a +")
    got = credit.advantages(apart, "hgpo", mode="mean_norm", history=3)
    np.testing.assert_allclose(np.concatenate(got), [-5, 0, 5], **TIGHT)


def test_one_malformed_reply_among_failures():
    got = credit.advantages(group("s:<invalid> -", "s:a -"), "hgpo", mode="mean_norm")
    np.testing.assert_allclose(np.concatenate(got), [-0.05, 0.05], **TIGHT)


def test_a_visit_at_the_mean_of_its_group_has_nothing_to_say():
    # At m the penalties are 0, 0.1 and 0.2 apart in level; the middle return is the mean, up to rounding.
    middle = group("s:a +", "s:a -", "s:<invalid> -")
    np.testing.assert_allclose(
        np.concatenate(credit.advantages(middle, "hgpo", mode="mean_norm", success_reward=0.1)), [0.1, 0, -0.1], **TIGHT
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": -1}, "history must be an integer >= 0, got -1"),
        ({"history": 1.5}, "history must be an integer >= 0"),
        ({"history": True}, "history must be an integer >= 0"),
        ({"alpha": -1.0}, "alpha must be finite and >= 0"),
        ({"first_weight": 0.0}, "first_weight must be positive"),
        ({"gamma": 0.0}, "gamma must lie in"),
        ({"mode": "std"}, "mode must be one of"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "hgpo", **options)
