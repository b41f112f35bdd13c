"""FrozenLake's maps: drawn from a seed, solvable, and the same up to rotation and reflection."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FROZEN, HOLE, GOAL, START = "FHGS"
SIZES = range(4, 9)
HOLES = 0.2
"""The probability that a cell is a hole, as in Gymnasium's own maps."""

Board = NDArray[np.str_]
"""(rows, columns) letters, as Gymnasium has them."""


@lru_cache(maxsize=4096)
def draw(seed: int, size: int) -> tuple[str, ...]:
    """The rows of a map. Start and goal lie anywhere, and the shortest way between them takes at least `size` steps."""
    rng = np.random.default_rng([seed, size])
    while True:
        board = np.where(rng.random((size, size)) < HOLES, HOLE, FROZEN)
        start, goal = rng.choice(size * size, 2, replace=False).tolist()
        board.flat[start], board.flat[goal] = START, GOAL
        if size <= distances(board)[start] < np.inf:
            return tuple(map("".join, board))


def own_map(rows: Sequence[str]) -> tuple[str, ...]:
    """Somebody's map, of texts or of letters. Raises `ValueError` unless its rows are even and S has a way to a G."""
    given, rows = rows, ["".join(cell.decode() if isinstance(cell, bytes) else cell for cell in row) for row in rows]
    letters, uneven = "".join(rows), isinstance(given, str) or len(set(map(len, rows))) != 1
    if uneven or {*letters, FROZEN, HOLE, GOAL} != {*"FHGS"} or letters.count(START) != 1:
        raise ValueError(f"desc must be rows of equal length, of the letters F, H and G and one S; got {given!r}")
    if distances(np.array(list(map(list, rows))))[letters.index(START)] == np.inf:
        raise ValueError(f"desc must have a way from S to G; got {rows!r}")
    return tuple(rows)


def distances(board: Board) -> NDArray[np.float64]:
    """The least number of steps from each cell, row by row, to the goal; infinity where there is no way."""
    rows, columns = board.shape
    distances = np.full(board.size, np.inf)
    distances[board.ravel() == GOAL] = 0
    cells = deque(np.flatnonzero(distances == 0).tolist())
    while cells:
        cell = cells.popleft()
        row, column = divmod(cell, columns)
        for r, c in ((row, column - 1), (row + 1, column), (row, column + 1), (row - 1, column)):
            if 0 <= r < rows and 0 <= c < columns and board[r, c] != HOLE and distances[r * columns + c] == np.inf:
                distances[r * columns + c] = distances[cell] + 1
                cells.append(r * columns + c)
    return distances


def canonical(board: Board) -> str:
    """The ice, the holes and the goal up to rotation and reflection. Where an episode starts does not count."""
    ice = np.where(board == START, FROZEN, board)
    return min("".join(np.rot90(side, turns).ravel()) for side in (ice, ice.T) for turns in range(4))
