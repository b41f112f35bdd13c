"""The linear system of the closure, (I - beta M) V = b, solved to rounding (paper, eq. 9)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import gmres, splu

from anchors import Sparse, sum_by
from anchors.columns import Floats, Ints
from crbc_rl.credit.errors import CreditError

Mask = NDArray[np.bool_]

RESIDUAL_TOLERANCE = 1e-12
"""The largest Bellman residual |beta M V + b - V| of an accepted solution, relative to the largest |V| or 1."""

ITERATED = 1e-14
"""The residual at which an iteration stops, relative to the largest value or 1."""

WIDE = 190
"""A block of anchors is iterated if LU would end in a dense system of more unknowns than this, see `_wide`."""


def solve(M: Sparse, b: Floats, beta: Floats, closed: Literal["error", "zero"] = "error") -> Floats:
    """V of (I - beta M) V = b, shape (S,), for M (S, S) substochastic, b (S,) and beta (S,) in (0, 1].

    `beta` is the same for all anchors that are connected. Anchors with one successor that earn nothing are eliminated
    by following their chain. The others form connected blocks. A block whose factors stay sparse is solved by LU, all
    of them together. The other blocks are iterated.

    At beta = 1 a cycle that nothing leaves has no value: `closed="error"` refuses it, "zero" gives it 0. Where nothing
    is ever earned, V is exactly 0. Raises `CreditError` for such a cycle, and where the residual exceeds
    `RESIDUAL_TOLERANCE`.
    """
    if (beta == 1.0).any():
        M, b = _without_closed(M, b, beta, closed)
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
    few = _largest_span(M, core) <= 2 * WIDE
    values = _factorise(matrix, b[core]) if few else _solve_blocks(matrix, b[core])
    V = gain * values[place[end]]
    residual = float(np.abs(b + beta * (M @ V) - V).max()) / max(1.0, float(np.abs(V).max()))
    if not residual <= RESIDUAL_TOLERANCE:
        raise CreditError(
            f"the closure left a Bellman residual of {residual:.1e} at beta = {beta.max()}; "
            f"accepted are {RESIDUAL_TOLERANCE:.0e}"
        )
    return V


def _without_closed(M: Sparse, b: Floats, beta: Floats, closed: Literal["error", "zero"]) -> tuple[Sparse, Floats]:
    """M and b without the anchors at beta = 1 from which no boundary is reached: those on a cycle that nothing leaves,
    and those that lead to nothing else."""
    leaves = sum_by(M.row, M.data, len(b)) < 1.0 - 1e-9  # the sum of a closed row is 1 to rounding
    stuck = ~_reaching(M.row, M.col, leaves) & (beta == 1.0)
    if not stuck.any():
        return M, b
    if closed == "error":
        raise CreditError(
            "(I - beta M) is singular at beta = 1: the counts hold a cycle that nothing leaves, so they are not those "
            "of complete rollouts"
        )
    kept = ~stuck[M.row]  # what leads to them finds 0
    return Sparse(M.row[kept], M.col[kept], M.data[kept], M.shape), np.where(stuck, 0.0, b)


def _reaching(row: Ints, col: Ints, goal: Mask) -> Mask:
    """The anchors from which edges `row` -> `col` lead to `goal`, itself included."""
    size, ends = len(goal), np.flatnonzero(goal)
    places = np.concatenate((col, np.full(len(ends), size))), np.concatenate((row, ends))
    backwards = csr_array((np.ones(len(places[0]), np.int8), places), shape=(size + 1, size + 1))
    reaching = np.zeros(size + 1, dtype=np.bool_)
    reaching[breadth_first_order(backwards, size, return_predecessors=False)] = True
    return reaching[:size]


def _follow(M: Sparse, single: Mask, beta: Floats) -> tuple[Ints, Floats]:
    """The end of every anchor's chain and the discount along it. A chain runs through anchors with one successor
    (`single`) to the first that branches, earns or ends. Any other anchor is its own end. Long rollouts have many
    chains. One that runs in a circle earns nothing, so its discount is 0."""
    size = len(single)
    end, gain = np.arange(size), np.ones(size)
    chained = single[M.row]
    end[M.row[chained]], gain[M.row[chained]] = M.col[chained], beta[M.row[chained]]
    for _ in range(size.bit_length()):  # the distance followed doubles each time
        if not single[end].any():
            return end, gain
        gain *= gain[end]
        end = end[end]
    gain[single[end]] = 0.0
    return end, gain


def _sparsest_first(core: Ints, row: Ints, col: Ints, size: int) -> Ints:
    """The anchors ordered by in-degree times out-degree, the fill-in of eliminating each: Markowitz's count, computed
    once. On rollout graphs the fill-in is as small as with minimum degree, at a lower cost."""
    ways = np.bincount(row, minlength=size) * np.bincount(col, minlength=size)
    short = ways[core].astype(np.min_scalar_type(int(ways.max(initial=0))))  # which numpy sorts by radix
    return core[np.argsort(short, kind="stable")]


def _system(row: Ints, col: Ints, data: Floats, size: int) -> csc_array:
    """I minus the given entries; duplicate entries are summed."""
    diagonal = np.arange(size)
    places = np.concatenate((diagonal, row)), np.concatenate((diagonal, col))
    return csc_array((np.concatenate((np.ones(size), -data)), places), shape=(size, size))


def _largest_span(M: Sparse, core: Ints) -> int:
    """The most `core` anchors in a span of numbers that no edge leaves, as the numbers of a group are: no connected
    block has more. This is much cheaper than to find the blocks."""
    size = M.shape[0]
    opened = np.bincount(np.minimum(M.row, M.col), minlength=size)
    shut = np.bincount(np.maximum(M.row, M.col), minlength=size)
    ends = np.cumsum(opened - shut) == 0
    span = np.cumsum(ends) - ends
    return int(np.bincount(span[core]).max(initial=0))


# ---- the blocks of branching anchors ------------------------------------------------------------------------------


def _solve_blocks(matrix: csc_array, b: Floats) -> Floats:
    """The solution of `matrix` x = b: its wide blocks are iterated, the others solved by LU."""
    wide = _wide(matrix)
    if not wide.any():
        return _factorise(matrix, b)
    values = np.zeros(len(b))
    narrow = np.flatnonzero(~wide)
    if len(narrow):
        values[narrow] = _factorise(matrix[narrow][:, narrow], b[narrow])
    row, col = matrix.tocoo().coords
    rest = np.flatnonzero(wide & _reaching(row, col, b != 0.0))  # elsewhere the value is exactly 0
    if len(rest):
        part = matrix[rest][:, rest]
        iterated = _iterate(part, b[rest])
        values[rest] = _factorise(part, b[rest], "MMD_AT_PLUS_A") if iterated is None else iterated
    return values


def _wide(matrix: csc_array) -> Mask:
    """The unknowns in blocks that LU would fill in.

    Eliminating an unknown with up to two neighbours adds no edge. That leaves at most two unknowns for each
    independent cycle, with three neighbours each, and a sixth of them ends dense on a random graph. A random graph
    with more edges ends with about half of its unknowns dense.
    """
    blocks, block = connected_components(matrix, directed=False)
    unknowns = np.bincount(block, minlength=blocks)
    neighbours = np.diff((matrix + matrix.T).indptr) - 1  # less the diagonal
    cycles = np.bincount(block, weights=neighbours, minlength=blocks) / 2 - unknowns + 1
    wide: Mask = (np.minimum(unknowns / 2, cycles / 3) > WIDE)[block]
    return wide


def _iterate(matrix: csc_array, b: Floats) -> Floats | None:
    """The solution of `matrix` x = b by GMRES; None where one call does not divide the residual by ten.

    Random graphs, whose factors are the largest, need 20 to 60 directions. Grids need more, and have small factors.
    """
    values, before = np.zeros(len(b)), np.inf
    while True:
        residual = b - matrix @ values
        error = float(np.abs(residual).max()) / max(1.0, float(np.abs(values).max()))
        stalled = not error <= before / 10  # so that nan ends it
        if error <= (50 * ITERATED if stalled else ITERATED):
            return values
        if stalled:
            return None
        values += gmres(matrix, residual, restart=20, maxiter=2, rtol=1e-8)[0]
        before = error


def _factorise(matrix: csc_array, b: Floats, order: str = "NATURAL") -> Floats:
    """Solve by LU, by default in the given order, with one step of refinement. The matrix is diagonally dominant, so
    it needs no pivoting. It is too sparse for panels of columns to pay off."""
    lu = splu(matrix, order, diag_pivot_thresh=0.0, relax=1, panel_size=1, options={"SymmetricMode": True})
    values: Floats = lu.solve(b)
    values += lu.solve(b - matrix @ values)
    return values
