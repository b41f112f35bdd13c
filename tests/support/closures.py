"""What tests of the closure ask of it."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import group

from anchors import EmpiricalProcess
from crbc_rl import credit

TIGHT = {"rtol": 0, "atol": 1e-12}
STITCHED = group("s:a m:c -", "s:b u:d m:e +")
"""Rollout 0 fails through m; rollout 1 comes by another way, passes m and succeeds."""


def solved(group, beta=0.98, depth=None, **options):
    """V by anchor key and Q by (anchor, action) key."""
    process = EmpiricalProcess.from_group(group)
    result = credit.closure(process, beta, depth, **options)
    V = dict(zip(process.anchors, result.V.tolist(), strict=True))
    Q = {(process.anchors[s], a): q for (s, a), q in zip(process.pairs, result.Q.tolist(), strict=True)}
    return V, Q


def assert_close(got, expected):
    """Two tables have the same keys and, to 1e-12, the same values."""
    assert got == pytest.approx(expected, rel=0, abs=1e-12)


def expect(process, per_pair, policy=None):
    """sum_a nu(a|s) f(s, a), nu = mu unless given."""
    weights = process.mu if policy is None else policy
    return np.bincount(process.pair_anchor, weights * per_pair, len(process.anchors))


def induced(process, policy):
    """M^nu, dense, and N(z+)'s share under nu."""
    size = len(process.anchors)
    rows = np.zeros((size, size + 2))
    np.add.at(rows, process.pair_anchor, policy[:, None] * process.P.toarray())
    return rows[:, :size], rows[:, size]
