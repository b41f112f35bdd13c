"""Large sparse systems whose factors would fill in: GMRES with aggregation multigrid as its preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import SuperLU, splu
from threadpoolctl import threadpool_limits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vector = NDArray[Any]

TOLERANCE = 1e-14
"""The residual at which the iteration stops, relative to the largest value or 1."""

_RESTART = 20
"""The most directions that GMRES keeps. Grids and random graphs need 20 to 60 in all."""

_PROGRESS = 10.0
"""The iteration gives up if `_RESTART` directions do not divide the residual by this."""

_SWEEPS = 6  # 250 random graphs need 96 directions with 0, 35 with 3, 27 with 6
_COARSEST = 1_000
_SHRINK = 0.6
_DAMPING = 0.8


def iterate(matrix: csr_array, b: Floats) -> Floats | None:
    """The solution of `matrix` x = b; None where it makes no progress.

    `matrix` (n, n) is I minus non-negative entries whose rows sum to at most 1. GMRES minimises the residual over the
    directions tried, so it cannot break down as BiCGSTAB does. On a random graph a few dozen directions are enough.
    On a grid information travels one edge a step; the coarse levels carry it further.
    """
    with threadpool_limits(1, user_api="blas"):  # two threads on a busy machine took 27 times as long
        weight, weighted = _weighted(matrix)
        multigrid = _Multigrid.of(weighted)
        values, before = np.zeros(len(b)), np.inf
        while True:
            residual = b - matrix @ values
            scale = max(1.0, float(np.abs(values).max()))
            error = float(np.abs(residual).max()) / scale
            stalled = error > before / _PROGRESS
            if error <= (50 * TOLERANCE if stalled else TOLERANCE):
                return values
            if stalled:
                return None
            goal = 4 * TOLERANCE * scale
            values += _gmres(matrix, residual, lambda r: multigrid.cycle((weight * r).astype(np.float32)), goal)
            before = error


def _gmres(matrix: csr_array, residual: Floats, precondition: Callable[[Floats], Vector], goal: float) -> Floats:
    """Flexible GMRES (Saad 1993) from 0: the correction whose residual has the least norm."""
    size, norm = len(residual), float(np.linalg.norm(residual))
    basis = np.empty((_RESTART + 1, size))
    tried = np.empty((_RESTART, size), dtype=np.float32)
    hessenberg, target = np.zeros((_RESTART + 1, _RESTART)), np.zeros(_RESTART + 1)
    basis[0], target[0] = residual / norm, norm
    for j in range(_RESTART):
        tried[j] = precondition(basis[j])
        new = matrix @ tried[j].astype(np.float64)
        overlap = hessenberg[: j + 1, j] = basis[: j + 1] @ new
        new -= overlap @ basis[: j + 1]
        length = hessenberg[j + 1, j] = float(np.linalg.norm(new))
        system, right = hessenberg[: j + 2, : j + 1], target[: j + 2]
        weights = np.linalg.lstsq(system, right, rcond=None)[0]
        if length <= 1e-15 * norm or np.linalg.norm(right - system @ weights) <= goal:
            break
        basis[j + 1] = new / length
    solution: Floats = weights @ tried[: j + 1]
    return solution


# ---- the preconditioner: a cycle over coarser and coarser systems, in single precision ---------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """A system, the damped inverse of its diagonal, the aggregate in the next, coarser system, of `parts`, that each
    unknown belongs to, and the weight of its residual there."""

    matrix: csr_array
    inverse: Vector
    part: Ints
    parts: int
    weight: Floats

    @classmethod
    def of(cls, matrix: csr_array, part: Ints, parts: int, weight: Floats) -> _Level:
        inverse = (_DAMPING / matrix.diagonal()).astype(np.float32)
        return cls(matrix.astype(np.float32), inverse, part, parts, weight)


@dataclass(frozen=True, slots=True, eq=False)
class _Multigrid:
    """Ever coarser `levels`, and the LU factors of the coarsest system."""

    levels: list[_Level]
    coarsest: SuperLU

    @classmethod
    def of(cls, matrix: csr_array) -> _Multigrid:
        """Aggregate until the system is small, or nothing is connected any more. A coarser system becomes a level if
        it is much smaller. On a random graph aggregates fill in instead of shrinking, so there is one large step."""
        levels: list[_Level] = []
        fine, part, weight = matrix, np.arange(matrix.shape[0]), np.ones(matrix.shape[0])
        while matrix.shape[0] > _COARSEST:
            parts, joined = _aggregate(matrix)
            if parts == matrix.shape[0]:
                break
            row, col = matrix.tocoo().coords
            matrix = coo_array((matrix.data, (joined[row], joined[col])), shape=(parts, parts)).tocsr()
            again, matrix = _weighted(matrix)
            part = joined[part]
            weight = weight * again[part]
            if matrix.nnz <= _SHRINK * fine.nnz:
                levels.append(_Level.of(fine, part, parts, weight))
                fine, part, weight = matrix, np.arange(parts), np.ones(parts)
        if fine is not matrix:
            levels.append(_Level.of(fine, part, matrix.shape[0], weight))
        factors = splu(matrix.tocsc(), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        return cls(levels, factors)

    def cycle(self, b: Vector, depth: int = 0) -> Vector:
        """An approximate solution: one damped sweep, the coarser system, one damped sweep."""
        if depth == len(self.levels):
            exact: Vector = self.coarsest.solve(b.astype(np.float64)).astype(np.float32)
            return exact
        level = self.levels[depth]
        values: Vector = level.inverse * b
        residual = b - level.matrix @ values
        coarse = np.bincount(level.part, weights=level.weight * residual, minlength=level.parts).astype(np.float32)
        values += self._accelerated(coarse, depth + 1)[level.part]
        values += level.inverse * (b - level.matrix @ values)
        return values

    def _accelerated(self, b: Vector, depth: int) -> Vector:
        """The combination of up to two cycles with the least residual (the K-cycle of Notay and Vassilevski 2008)."""
        first = self.cycle(b, depth)
        if depth == len(self.levels):
            return first
        image = self.levels[depth].matrix @ first
        norm = image @ image
        if not norm > 0.0:
            return first
        share = (image @ b) / norm
        rest = b - share * image
        once: Vector = share * first
        if rest @ rest < b @ b / 16:
            return once
        second = self.cycle(rest, depth)
        other = self.levels[depth].matrix @ second
        overlap = (other @ image) / norm
        other -= overlap * image
        norm = other @ other
        if not norm > 0.0:
            return once
        more = (other @ rest) / norm
        twice: Vector = (share - overlap * more) * first + more * second
        return twice


def _weighted(matrix: csr_array) -> tuple[Floats, csr_array]:
    """About how often each unknown is visited, and the system with its rows weighted by that.

    An aggregate's equation is the sum of its members'. Without weights its solution is too large or too small.
    """
    back, diagonal = matrix.T.tocsr(), matrix.diagonal()
    visits = np.ones(matrix.shape[0])
    for _ in range(_SWEEPS):
        visits -= 0.5 * (back @ visits) / diagonal
    weighted = matrix.copy()
    weighted.data *= np.repeat(visits, np.diff(matrix.indptr))
    return visits, weighted


def _aggregate(matrix: csr_array) -> tuple[int, Ints]:
    """Join each unknown with its strongest neighbour: the number of aggregates, and that of each unknown.

    Ties are broken by a fixed jitter, the same in both directions. Otherwise a row of equals would form one aggregate.
    """
    both = (-(matrix + matrix.T)).tocsr()
    row = np.repeat(np.arange(both.shape[0]), np.diff(both.indptr))
    low, high = np.minimum(row, both.indices), np.maximum(row, both.indices)
    jitter = ((low * 2_654_435_761 + high * 40_503) & 0xFFFF) / 0xFFFF
    strength = np.where(low == high, 0.0, both.data * (1.0 + 0.1 * jitter))
    strongest = np.maximum.reduceat(strength, both.indptr[:-1])  # the diagonal keeps every row from being empty
    kept = (strength == strongest[row]) & (strength > 0.0)
    links = coo_array((np.ones(int(kept.sum()), np.int8), (row[kept], both.indices[kept])), shape=both.shape)
    parts, part = connected_components(links, directed=False)
    return int(parts), part
