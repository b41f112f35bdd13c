"""GraphGPO against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
from closures import TIGHT
from strategies import group

from crbc_rl import credit

HAND = group("s:a m:b +", "s:b u:a s:a u:c -")
"""d(s) = 2 by m, d(m) = 1, d(u) = 3 by s; what is beyond has d = 4. At omega 1/2 a step into them earns
2.5, 5, 1.25 and 0.625; at s: 5, 1.25, 1.25; at u: 2.5 and 0.625."""


def test_distances_by_hand():
    got = credit.advantages(HAND, "graphgpo", omega=0.5, mode="mean_norm", w_group=0.0)
    np.testing.assert_allclose(got[0], [2.5, 0], **TIGHT)
    np.testing.assert_allclose(got[1], [-1.25, 0.9375, -1.25, -0.9375], **TIGHT)
