"""The Bellman closure of an empirical process and its finite-depth family (paper, eqs. 6 to 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, InternedRollouts, sum_by
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.solve import solve

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """State values, action values and credit of one process, in the process's own order.

    With S anchors and L pairs: `V` (S,), `Q` (L,), `A` = Q - V (L,), and `sigma` (S,), the standard
    deviation of A under the behaviour mu at each anchor (Proposition 2).
    """

    V: Floats
    Q: Floats
    A: Floats
    sigma: Floats


def closure(process: EmpiricalProcess, beta: float = 0.98, depth: int | None = None) -> Closure:
    """Evaluate `process` at its behaviour-policy Bellman fixed point, or after `depth` backups.

    `depth=None` is the full closure: (I - beta M) V = b by one sparse LU, then Q = B V (eq. 9).
    `depth=K` is the K-th member of the finite family: V_K = T^K V_0 and Q_K = B V_(K-1), where V_0
    and Q_0 are the visit-local means of realised suffix returns (eqs. 6 and 10); it needs a process
    built from rollouts, since counts do not contain the suffixes.

    The concurrent GRAFT (arXiv 2609.28963) has the same value function V. It computes a step's credit as
    gamma V(x) - V(s), followed by GAE over the graph. CRBC computes Q - V, which averages over all observed successors
    of the (anchor, action) pair.

    `beta` lies in (0, 1]. At 1 the system is still regular for every group of complete rollouts, since every rollout
    leads from each anchor it visits to a boundary.

    Raises `CreditError` for options out of range and for a solution whose residual exceeds
    `solve.RESIDUAL_TOLERANCE`, as for counts with a cycle that nothing leaves at beta = 1.
    """
    if not 0.0 < beta <= 1.0:
        raise CreditError(f"beta must lie in (0, 1], got {beta!r}")
    if depth is None:
        V = _solve(process, beta)
        Q = process.backup(V, beta)
    elif isinstance(depth, int | np.integer) and not isinstance(depth, bool) and depth >= 0:
        Q = _visit_local_q(process, beta)
        V = _expect(process, Q)
        for _ in range(depth):
            Q = process.backup(V, beta)
            V = _expect(process, Q)
    else:
        raise CreditError(f"depth must be None (the full closure) or an integer >= 0, got {depth!r}")
    A = Q - V[process.pair_anchor]
    A[process.actions_per_anchor[process.pair_anchor] < 2] = 0.0  # one action: Q = V, rounding aside
    return Closure(V=V, Q=Q, A=A, sigma=np.sqrt(_expect(process, A * A)))


def _expect(process: EmpiricalProcess, per_pair: Floats) -> Floats:
    """sum_a mu(a|s) f(s, a), shape (S,)."""
    return sum_by(process.pair_anchor, process.pair_count * per_pair, process.num_anchors) / process.anchor_count


def _visit_local_q(process: EmpiricalProcess, beta: float) -> Floats:
    """Q_0(s, a): the mean of G_(i,t) = beta^(T_i - t + 1) R_i over the visits to (s, a) (eq. 6)."""
    rollouts, pair = process.steps("a finite depth needs")
    return sum_by(pair, suffix_returns(rollouts, beta), process.num_pairs) / process.pair_count


def suffix_returns(rollouts: InternedRollouts, beta: float) -> Floats:
    """G_(i,t) = beta^(T_i - t + 1) R_i for every step, in order (section 3)."""
    return np.where(rollouts.success[rollouts.rollout], beta ** rollouts.remaining.astype(np.float64), 0.0)


def _solve(process: EmpiricalProcess, beta: float) -> Floats:
    """The fixed point V of eq. 9."""
    b = process.b(beta)
    if not b.any():
        return np.zeros(process.num_anchors)  # no member succeeded
    return solve(process.M, b, beta).clip(0.0, beta)  # the exact solution lies here (Proposition 1)
