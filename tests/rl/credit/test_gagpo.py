"""GAGPO against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
from closures import TIGHT
from strategies import group

from crbc_rl import credit

ONE = {"mode": "mean_norm", "success_reward": 1.0}


def test_differences_by_hand():
    # gamma 1/2: returns 1/2 and 0 from s, 1 at m. V(s) = 1/4, V(m) = 1. delta: 1/4 and 0; -1/4. Their mean is 0.
    hand = group("s:a m:b +", "s:b -")
    got = credit.advantages(hand, "gagpo", gamma=0.5, lam=0.5, **ONE)
    np.testing.assert_allclose(np.concatenate(got), [1 / 4, 0, -1 / 4], **TIGHT)
    got = credit.advantages(hand, "gagpo", gamma=0.5, lam=0.5, success_reward=1.0)
    np.testing.assert_allclose(np.concatenate(got), [1 / (1 + 4e-6), 0, -1 / (1 + 4e-6)], **TIGHT)
    # m is visited twice: V(m) = 1/2, V(s) = (1/2 + 0) / 2. delta: 0, 1/2; 0, -1/2. GAE: 1/8, 1/2; -1/8, -1/2.
    got = credit.advantages(group("s:a m:b +", "s:a m:b -"), "gagpo", gamma=0.5, lam=0.5, **ONE)
    np.testing.assert_allclose(np.concatenate(got), [1 / 8, 1 / 2, -1 / 8, -1 / 2], **TIGHT)
