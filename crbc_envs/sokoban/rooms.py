"""Generates rooms of any size.

The floor grows from one cell, then targets are drawn. The start is a state from the exact backward search, so its
distance to a solution is known. Every room is therefore solvable, and its solution length can be chosen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crbc_envs.sokoban.rules import Room, State

MAX_TRIES = 1_000
"""The maximum number of floors drawn for a room. At 6x6 a few are enough."""

FLOOR_SHARE = (0.45, 0.8)
"""The bounds of the share of a room's inside that is floor."""

THINNING = 0.8
"""How often a cell that closes a loop of floor is refused. Rooms of corridors take longer than halls."""


def empty_rooms(rng: np.random.Generator, height: int, width: int, num_boxes: int) -> Iterator[Room]:
    """Draw layouts, `MAX_TRIES` at most, each as a room whose boxes stand on the targets. It has no player yet.

    Raises `ValueError` for an impossible size.
    """
    interior = [r * width + c for r in range(1, height - 1) for c in range(1, width - 1)]
    if num_boxes < 1:
        raise ValueError(f"a room has at least one box, got num_boxes={num_boxes}")
    if len(interior) < 2 * num_boxes + 2:
        raise ValueError(f"a {height}x{width} room is too small for {num_boxes} boxes")
    for _ in range(MAX_TRIES):
        cells = _grow_floor(rng, interior, width)
        if len(cells) > 2 * num_boxes:
            targets = frozenset(rng.choice(sorted(cells), num_boxes, replace=False).tolist())
            yield Room(height, width, cells, targets, State(-1, targets))


def _grow_floor(rng: np.random.Generator, interior: list[int], width: int) -> frozenset[int]:
    """A connected floor, grown from one random cell."""
    size = round(rng.uniform(*FLOOR_SHARE) * len(interior))
    cells = [interior[rng.integers(len(interior))]]
    grown = set(cells)
    free = set(interior).difference(cells)
    shifts = (-width, width, -1, 1)
    while len(cells) < size:
        # Drawn in blocks, because a call costs more than a draw.
        for where, which, kept in rng.random((2 * size, 3)).tolist():
            cell = cells[int(where * len(cells))] + shifts[int(which * 4)]
            if cell in free and len(cells) < size:
                if kept < THINNING and sum(cell + shift in grown for shift in shifts) > 1:
                    continue
                free.remove(cell)
                grown.add(cell)
                cells.append(cell)
    return frozenset(cells)
