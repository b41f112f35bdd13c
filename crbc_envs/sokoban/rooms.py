"""Generates rooms, and the "clean" panel of rooms.

The floor grows from one cell, then targets are drawn. The start is a state from the exact backward search, so its
distance to a solution is known. Every room is therefore solvable, and its solution length can be chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crbc_envs.sokoban.rules import Room, State
from crbc_envs.sokoban.solver import Distances, distances
from crbc_envs.tasks import SPLITS, Task, TaskPanel

TEXT = "Push every box ($) onto a target (.)."

VERSION = 2
"""The version of the clean panel. It is increased whenever the rooms change."""

PANEL_SIZE = {"train": 100_000, "validation": 2_000, "test": 2_000}

STRATA = 8
"""The number of solution lengths that a panel mixes evenly. Longer one-box rooms are few and would repeat."""

MAX_TRIES = 1_000
"""The maximum number of floors drawn for a room. At 6x6 a few are enough."""

MAX_STATES = 20_000
"""The number of states at which the search of one floor stops adding layers."""

MAX_SEARCHED = 200_000
"""The number of states, over all floors of a task, after which a room of another length is accepted."""

BUCKETS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
"""The residues modulo 10 of a room's canonical digest, by split."""


def generate_room(
    rng: np.random.Generator, height: int = 6, width: int = 6, num_boxes: int = 1, max_length: int = 12
) -> Room:
    """Draw a room with `num_boxes` boxes, none of them on a target, 1 to `max_length` moves from a solution.

    All lengths that the floor allows are equally likely. Raises `ValueError` if no room of this size was found.
    """
    for floor in _floors(rng, height, width, num_boxes):
        lengths = [length for length in floor.lengths if length <= max_length]
        if lengths:
            starts = floor.lengths[lengths[rng.integers(len(lengths))]]
            return floor.room(starts[rng.integers(len(starts))])
    raise ValueError(f"no solvable {height}x{width} room with {num_boxes} boxes in {MAX_TRIES} tries")


class _Floor:
    """A floor with its targets.

    `lengths` has the start states (codes of the search) with no box on a target, by their distance to a solution.
    """

    def __init__(self, height: int, width: int, floor: frozenset[int], targets: frozenset[int]) -> None:
        self._empty = Room(height, width, floor, targets, State(-1, targets))
        self._found: Distances = distances(self._empty, MAX_STATES)
        self.searched = len(self._found)
        self.lengths: dict[int, list[int]] = {}
        for length, layer in enumerate(self._found.layers):
            starts = [code for code in layer if not code & self._found.goal]
            if starts:
                self.lengths[length] = starts

    def room(self, start: int) -> Room:
        return replace(self._empty, start=self._found.decode(start))


def _floors(rng: np.random.Generator, height: int, width: int, num_boxes: int) -> Iterator[_Floor]:
    """Draw floors, `MAX_TRIES` at most. Raises `ValueError` for an impossible size."""
    interior = [r * width + c for r in range(1, height - 1) for c in range(1, width - 1)]
    if num_boxes < 1:
        raise ValueError(f"a room has at least one box, got num_boxes={num_boxes}")
    if len(interior) < 2 * num_boxes + 2:
        raise ValueError(f"a {height}x{width} room is too small for {num_boxes} boxes")
    for _ in range(MAX_TRIES):
        cells = _grow_floor(rng, interior, width)
        if len(cells) > 2 * num_boxes:
            targets = rng.choice(sorted(cells), num_boxes, replace=False)
            yield _Floor(height, width, cells, frozenset(targets.tolist()))


def _grow_floor(rng: np.random.Generator, interior: list[int], width: int) -> frozenset[int]:
    """A connected floor of 45 to 90 per cent of the interior, grown from one random cell."""
    wanted = round(rng.uniform(0.45, 0.9) * len(interior))
    cells = [interior[rng.integers(len(interior))]]
    free = set(interior).difference(cells)
    while len(cells) < wanted:
        for where, which in rng.random((2 * wanted, 2)).tolist():  # in blocks, because a call costs more than a draw
            cell = cells[int(where * len(cells))] + (-width, width, -1, 1)[int(which * 4)]
            if cell in free and len(cells) < wanted:
                free.remove(cell)
                cells.append(cell)
    return frozenset(cells)


def canonical_digest(room: Room) -> str:
    """The hash of a room (hex), equal for rotated and mirrored rooms, because these are the same puzzle."""
    tiles = room.tiles(room.start).ravel()
    canonical = min(shape + tiles[cells].tobytes() for shape, cells in _images(room.height, room.width))
    return hashlib.sha256(canonical).hexdigest()


@lru_cache(maxsize=64)
def _images(height: int, width: int) -> list[tuple[bytes, NDArray[np.intp]]]:
    """The eight rotations and reflections of a board: the shape of each, and its cells in order."""
    cells = np.arange(height * width).reshape(height, width)
    images = [np.rot90(side, turn) for side in (cells, cells.T) for turn in range(4)]
    return [(f"{image.shape}".encode(), image.ravel()) for image in images]


class SokobanPanel(TaskPanel[Room]):
    """Generated rooms, split by canonical digest, with evenly mixed solution lengths.

    No validation or test room, nor a mirror image of one, is in the training split. Task i of any split takes
    `wanted_length(i)` moves: of any eight consecutive tasks, one takes 1 move, one 2, ... one 8 (with b boxes,
    b to b + 7). Sizes with too few such rooms use the nearest length that was found.
    """

    def __init__(self, split: str, height: int = 6, width: int = 6, num_boxes: int = 1) -> None:
        super().__init__(split, PANEL_SIZE.get(split, 0))
        self.shape = (height, width, num_boxes)

    def _task(self, index: int) -> Task[Room]:
        return _panel_task(self.split, index, *self.shape)


def wanted_length(index: int, num_boxes: int = 1) -> int:
    """The solution length of task `index`, in every split."""
    return num_boxes + index % STRATA


@lru_cache(maxsize=4096)
def _panel_task(split: str, index: int, height: int, width: int, num_boxes: int) -> Task[Room]:
    rng = np.random.default_rng([VERSION, SPLITS.index(split), index, height, width, num_boxes])
    wanted, searched = wanted_length(index, num_boxes), 0
    nearest: tuple[int, Room, str] | None = None
    for floor in _floors(rng, height, width, num_boxes):
        for length in sorted(floor.lengths, key=lambda length: abs(length - wanted)):
            gap = abs(length - wanted)
            if nearest and gap >= nearest[0]:
                break
            found = _first_of_split(rng, floor, length, split)
            if found:
                nearest = (gap, *found)
        searched += floor.searched
        if nearest and (nearest[0] == 0 or searched > MAX_SEARCHED):
            break
    if nearest is None:
        raise ValueError(f"{height}x{width} rooms with {num_boxes} boxes are too few to fill the {split} split")
    return Task(f"sokoban-v{VERSION}/{split}/{index}", TEXT, *nearest[1:])


def _first_of_split(rng: np.random.Generator, floor: _Floor, length: int, split: str) -> tuple[Room, str] | None:
    """A random start of that length whose room is in the split, and the room's digest. None if there is none."""
    for start in rng.permutation(len(floor.lengths[length])).tolist():
        room = floor.room(floor.lengths[length][start])
        digest = canonical_digest(room)
        if int(digest, 16) % 10 in BUCKETS[split]:
            return room, digest
    return None
