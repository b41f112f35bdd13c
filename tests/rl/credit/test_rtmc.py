"""RTMC against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import math

import numpy as np
from closures import TIGHT
from strategies import group

from crbc_rl import credit


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
