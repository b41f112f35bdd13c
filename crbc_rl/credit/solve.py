"""The linear system of the closure, (I - beta M) V = b, solved to rounding (paper, eq. 9)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.sparse.linalg import bicgstab, splu
from threadpoolctl import threadpool_limits

from anchors import Sparse
from crbc_rl.credit.errors import CreditError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESIDUAL_TOLERANCE = 1e-12
"""The largest Bellman residual |beta M V + b - V| of an accepted solution; values lie in [0, 1]."""

LARGE = 20_000
"""From this number of branching anchors on, BiCGSTAB is tried first: the fill-in of LU grows faster than the system."""

_ROUNDING = 1e-14
"""The residual at which the iteration stops; that of LU is well below it."""

_NO_EXIT = "the counts hold a cycle that nothing leaves, so they are not those of complete rollouts"


def solve(M: Sparse, b: Floats, beta: Floats, closed: Literal["error", "zero"] = "error") -> Floats:
    """V of (I - beta M) V = b, shape (S,), for M (S, S) substochastic, b (S,) and beta (S,) in (0, 1].

    Anchors with one successor that earn nothing are eliminated by following their chain. The others are solved by one
    sparse LU, or from `LARGE` of them on by BiCGSTAB, with LU where that does not converge. Raises `CreditError` where
    the residual exceeds `RESIDUAL_TOLERANCE`, or the system is singular.
    """
    size = len(b)
    single = np.zeros(size, dtype=np.bool_)
    single[M.row[(np.bincount(M.row, minlength=size)[M.row] == 1) & (M.data == 1.0)]] = True
    single &= b == 0.0  # an anchor that earns by itself is no mere link of a chain
    end, gain = _follow(M, single, beta)
    inner = ~single[M.row]
    row, to = M.row[inner], M.col[inner]
    core = _sparsest_first(np.flatnonzero(~single), row, end[to], size)
    place = np.zeros(size, dtype=np.int64)
    place[core] = np.arange(len(core))
    matrix = _system(place[row], place[end[to]], beta[row] * M.data[inner] * gain[to], len(core))
    values = _iterate(matrix, b[core]) if len(core) >= LARGE else None
    if values is None:
        values = _factorise(matrix, b[core], float(beta.max()))
    V = gain * values[place[end]]
    residual = float(np.abs(b + beta * (M @ V) - V).max())
    if not residual <= RESIDUAL_TOLERANCE:
        raise CreditError(f"the closure left a Bellman residual of {residual:.1e} at beta = {beta.max()}: {_NO_EXIT}")
    return V


def _follow(M: Sparse, single: NDArray[np.bool_], beta: Floats) -> tuple[Ints, Floats]:
    """The end of every anchor's chain and the discount along it. A chain runs through anchors with one successor
    (`single`) to the first that branches or ends. Any other anchor is its own end. Long rollouts have many chains."""
    size = len(single)
    end, gain = np.arange(size), np.ones(size)
    chained = single[M.row]
    end[M.row[chained]], gain[M.row[chained]] = M.col[chained], beta[M.row[chained]]
    for _ in range(size.bit_length()):  # the distance followed doubles each time
        if not single[end].any():
            return end, gain
        gain *= gain[end]
        end = end[end]
    endless = single[end]
    if (endless & (beta == 1.0)).any():
        raise CreditError(f"(I - beta M) is singular at beta = 1: {_NO_EXIT}")
    gain[endless] = 0.0
    return end, gain


def _sparsest_first(core: Ints, row: Ints, col: Ints, size: int) -> Ints:
    """The anchors ordered by in-degree times out-degree, the fill-in of eliminating each: Markowitz's count, computed
    once. On rollout graphs the fill-in is as small as with minimum degree, at a lower cost."""
    ways = np.bincount(row, minlength=size) * np.bincount(col, minlength=size)
    return core[np.argsort(ways[core], kind="stable")]


def _factorise(matrix: csc_array, b: Floats, beta: float) -> Floats:
    """Solve by LU in the given order, with one step of refinement. The matrix is diagonally dominant, so it needs no
    pivoting. It is too sparse for panels of columns to pay off."""
    try:
        lu = splu(matrix, "NATURAL", diag_pivot_thresh=0.0, relax=1, panel_size=1, options={"SymmetricMode": True})
    except RuntimeError as error:  # SuperLU raises it for an exactly singular matrix
        raise CreditError(f"(I - beta M) is singular at beta = {beta}: {_NO_EXIT}") from error
    values: Floats = lu.solve(b)
    values += lu.solve(b - matrix @ values)
    return values


def _iterate(matrix: csc_array, b: Floats) -> Floats | None:
    """Solve by BiCGSTAB with a few restarts, each on the last residual; None where it does not converge."""
    rows = matrix.tocsr()
    values = np.zeros(len(b))
    with threadpool_limits(1, user_api="blas"):  # two threads on a busy machine took 27 times as long
        for _ in range(4):
            residual = b - rows @ values
            if np.abs(residual).max() <= _ROUNDING:
                return values
            step, status = bicgstab(rows, residual, rtol=1e-8, atol=0.0, maxiter=500)
            if status:
                break
            values += step
    return None


def _system(row: Ints, col: Ints, data: Floats, size: int) -> csc_array:
    """I minus the given entries; duplicate entries are summed."""
    diagonal = np.arange(size)
    places = np.concatenate((diagonal, row)), np.concatenate((diagonal, col))
    return csc_array((np.concatenate((np.ones(size), -data)), places), shape=(size, size))
