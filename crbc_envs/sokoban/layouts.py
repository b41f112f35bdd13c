"""All layouts of 6x6 rooms with one box, found by search over every floor at once.

The inside of such a room has 4x4 cells, so a set of cells is a 16-bit number. Bit 4 r + c is the cell in row r and
column c. Numpy then treats all floors alike: a step to the left is a shift by one bit. Nothing is stored: the whole
search takes a fraction of a second, once per process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crbc_envs.sokoban.rules import TARGET, Tiles, digest, images

SIDE = 4
CELLS = SIDE * SIDE

LONGEST = 8
"""The search stops at starts this many moves from a solution. Only one layout in four has a longer one."""

Bits = NDArray[np.uint16]
Codes = NDArray[np.uint64]

TOP, LEFT = 0x000F, 0x1111
"""The first row and the first column."""

STEPS = (-SIDE, SIDE, -1, 1)


class Layouts(NamedTuple):
    """n layouts, no two of them equal up to rotation, reflection and shift, in the order of their digests.

    `tiles[i]` is the board of layout i without its outer walls, `digests[i]` its `layout_digest`, and `lengths[i, d]`
    whether a box can start d moves from a solution (d up to `LONGEST`), off the target.
    """

    tiles: list[Tiles]
    digests: list[str]
    lengths: NDArray[np.bool_]


@lru_cache(maxsize=1)
def all_layouts() -> Layouts:
    """Every layout with a connected floor that has a start at all."""
    floors = _connected()
    pairs = (floors[:, None] & _bit(np.arange(CELLS))[None, :]).nonzero()
    codes = np.unique(_canonical(floors[pairs[0]], _bit(pairs[1])))
    floors, targets = _decode(codes)
    lengths = _lengths(floors, targets)
    usable = lengths.any(axis=1)
    boards = _boards(codes[usable])
    digests = [digest((board.shape, board.tobytes())) for board in boards]
    order = np.argsort(digests)
    return Layouts([boards[i] for i in order], [digests[i] for i in order], lengths[usable][order])


def _bit(cells: NDArray[np.intp]) -> Bits:
    return np.left_shift(1, cells).astype(np.uint16)


def _stepped(cells: Bits, step: int) -> Bits:
    """Every cell's neighbour in one direction. Those outside the board are dropped."""
    kept = cells & np.uint16({-1: 0xFFFF ^ LEFT, 1: 0xFFFF ^ LEFT << SIDE - 1}.get(step, 0xFFFF))
    return kept >> np.uint16(-step) if step < 0 else kept << np.uint16(step)


def _neighbours(cells: Bits) -> Bits:
    up, down, left, right = (_stepped(cells, step) for step in STEPS)
    return up | down | left | right


def _connected() -> Bits:
    """All connected sets of cells."""
    every: Bits = np.arange(1, 1 << CELLS, dtype=np.uint16)
    seen: Bits = every & (~every + np.uint16(1))  # the lowest cell
    for _ in range(CELLS):
        seen = seen | _neighbours(seen) & every
    return every[seen == every]


# ---- one code for all images of a layout ----------------------------------------------------------


def _canonical(floors: Bits, targets: Bits) -> Codes:
    """The smallest code of a layout's eight images: 8 bits each of height and width, then two bits a cell.

    The first cell is the highest, so codes are in the order of `rules.images`' (shape, tile codes).
    """
    turned = [image.ravel() for image in images(np.arange(1, CELLS + 1, dtype=np.uint8).reshape(SIDE, SIDE))]
    smallest = np.full(len(floors), np.iinfo(np.uint64).max)
    for image in turned:
        floor, target = (_permuted(cells, image - 1) for cells in (floors, targets))
        for edge, step in ((TOP, SIDE), (LEFT, 1)):
            for _ in range(SIDE - 1):
                empty = floor & edge == 0
                floor[empty] >>= step
                target[empty] >>= step
        smallest = np.minimum(smallest, _code(floor, target))
    return smallest


def _permuted(cells: Bits, image: NDArray[np.uint8]) -> Bits:
    moved = np.zeros_like(cells)
    for place, cell in enumerate(image.tolist()):
        moved |= (cells >> cell & 1) << place
    return moved


def _code(floor: Bits, target: Bits) -> Codes:
    code: Codes = np.zeros(len(floor), dtype=np.uint64)
    for line, step in ((TOP, SIDE), (LEFT, 1)):  # how many rows, then how many columns
        for i in range(SIDE):
            code += (floor & line << step * i != 0).astype(np.uint64)
        code <<= np.uint64(8 if line == TOP else 0)
    for cell in range(CELLS):
        code <<= np.uint64(2)
        code += ((floor >> cell & 1) + (target >> cell & 1)).astype(np.uint64)
    return code


def _tile(codes: Codes, cell: int) -> Codes:
    return codes >> np.uint64(2 * (CELLS - 1 - cell)) & np.uint64(3)


def _decode(codes: Codes) -> tuple[Bits, Bits]:
    floors, targets = (np.zeros(len(codes), dtype=np.uint16) for _ in range(2))
    for cell in range(CELLS):
        tile = _tile(codes, cell)
        floors |= (tile > 0).astype(np.uint16) << cell
        targets |= (tile == TARGET).astype(np.uint16) << cell
    return floors, targets


def _boards(codes: Codes) -> list[Tiles]:
    tiles = np.stack([_tile(codes, cell) for cell in range(CELLS)], axis=1).astype(np.uint8)
    boards = tiles.reshape(-1, SIDE, SIDE)
    shapes = zip((codes >> 40).tolist(), (codes >> 32 & 255).tolist(), strict=True)
    return [board[:height, :width] for board, (height, width) in zip(boards, shapes, strict=True)]


# ---- solution lengths -----------------------------------------------------------------------------


def _lengths(floors: Bits, targets: Bits) -> NDArray[np.bool_]:
    """Breadth-first search backwards from the solved states, of all layouts at once.

    `layer[i, b]` holds the player's cells, in layout i with the box on cell b, of the states d moves from a solution.
    """
    box = _bit(np.arange(CELLS))[None, :]
    free = np.where(floors[:, None] & box, floors[:, None] & ~box, 0).astype(np.uint16)
    solved = targets[:, None] == box
    layer = np.where(solved, free, 0).astype(np.uint16)
    seen = layer.copy()
    lengths = np.zeros((len(floors), LONGEST + 1), dtype=bool)
    for length in range(1, LONGEST + 1):
        before = _neighbours(layer)
        for step in STEPS:
            _pull(layer, before, step)
        layer = before & free & ~seen
        seen |= layer
        lengths[:, length] = (np.where(solved, 0, layer) != 0).any(axis=1)
    return lengths


def _pull(layer: Bits, before: Bits, step: int) -> None:
    """Add to `before` the states before a push against `step`: box and player were one step further."""
    for cell in range(CELLS):
        beside = int(_stepped(_bit(np.array(cell)), step))
        beyond = _stepped(np.array(beside, dtype=np.uint16), step)
        if beyond:
            pulled = layer[:, cell] & np.uint16(beside) != 0
            before[:, beside.bit_length() - 1] |= np.where(pulled, beyond, np.uint16(0))
