"""The closure by its definitions, with dictionaries and a dense solve, and what its tests ask of it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from strategies import group

from anchors import FAILURE, SUCCESS, EmpiricalProcess
from crbc_rl import credit

TIGHT = {"rtol": 0, "atol": 1e-12}
STITCHED = group("s:a m:c -", "s:b u:d m:e +")
"""Rollout 0 fails through m; rollout 1 comes by another way, passes m and succeeds."""


def solved(group, beta=0.98, depth=None):
    """V by anchor key and Q by (anchor, action) key."""
    process = EmpiricalProcess.from_group(group)
    result = credit.closure(process, beta, depth)
    V = dict(zip(process.anchors, result.V.tolist(), strict=True))
    Q = {(process.anchors[s], a): q for (s, a), q in zip(process.pairs, result.Q.tolist(), strict=True)}
    return V, Q


def naive(group, beta, depth):
    """The same from the definitions, with dictionaries and a dense solve; shares no code with the library."""
    visits, suffix = defaultdict(list), defaultdict(list)
    for played in group.rollouts:
        T = len(played.steps)
        for t, step in enumerate(played.steps):
            end = SUCCESS if played.success else FAILURE
            visits[step.anchor, step.action].append(played.steps[t + 1].anchor if t + 1 < T else end)
            suffix[step.anchor, step.action].append(beta ** (T - t) * played.success)
    anchors = list(dict.fromkeys(s for s, _ in visits))

    def state(Q):
        totals = {s: [len(v) * Q[p] for p, v in visits.items() if p[0] == s] for s in anchors}
        return {s: sum(totals[s]) / sum(len(v) for p, v in visits.items() if p[0] == s) for s in anchors}

    def backup(V):
        V = {**V, SUCCESS: 1.0, FAILURE: 0.0}
        return {p: beta * sum(V[x] for x in xs) / len(xs) for p, xs in visits.items()}

    if depth is None:
        zero = dict.fromkeys(anchors, 0.0)
        b = state(backup(zero))
        columns = [state(backup({**zero, s: 1.0})) for s in anchors]
        system = np.eye(len(anchors)) - np.array([[c[s] - b[s] for c in columns] for s in anchors])
        V = dict(zip(anchors, np.linalg.solve(system, [b[s] for s in anchors]).tolist(), strict=True))
        return V, backup(V)
    Q = {pair: sum(values) / len(values) for pair, values in suffix.items()}
    for _ in range(depth):
        Q = backup(state(Q))
    return state(Q), Q


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
