"""HGPO against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT
from strategies import group

from crbc_rl import credit

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


def test_a_visit_at_the_mean_of_its_group_has_nothing_to_say():
    # At m the penalties are 0, 0.1 and 0.2 apart in level; the middle return is the mean, up to rounding.
    middle = group("s:a +", "s:a -", "s:<invalid> -")
    np.testing.assert_allclose(
        np.concatenate(credit.advantages(middle, "hgpo", mode="mean_norm", success_reward=0.1)), [0.1, 0, -0.1], **TIGHT
    )
