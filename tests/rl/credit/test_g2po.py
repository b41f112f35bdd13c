"""G2PO against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
from closures import TIGHT
from strategies import group

from crbc_rl import credit

STEP = {"w_group": 0.0}


def test_edges_and_gains_by_hand():
    # gamma 1/2: V(s) = (2.5 + 0) / 2 = 1.25, V(m) = 5. Edges at s: 5 and 0. Gains: 3.75, 5 and -1.25, mean 2.5.
    hand = group("s:a m:b +", "s:b -")
    got = credit.advantages(hand, "g2po", gamma=0.5, mode="mean_norm", **STEP)
    np.testing.assert_allclose(np.concatenate(got), [2.5 + 1.25, 2.5, -2.5 - 3.75], **TIGHT)
    got = credit.advantages(hand, "g2po", gamma=0.5, **STEP)
    edge, gain = 5 / np.sqrt(2) + 1e-6, np.sqrt((1.25**2 + 2.5**2 + 3.75**2) / 2) + 1e-6
    np.testing.assert_allclose(
        np.concatenate(got), [2.5 / edge + 1.25 / gain, 2.5 / gain, -2.5 / edge - 3.75 / gain], **TIGHT
    )
    got = credit.advantages(hand, "g2po", gamma=0.5, mode="mean_norm", w_step=2.0)
    np.testing.assert_allclose(np.concatenate(got), [7.5 + 5, 5 + 5, -12.5 - 5], **TIGHT)
