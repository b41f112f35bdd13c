"""Rooms that are the same puzzle: equal up to rotation, reflection and a shift within the outer wall.

A layout is a room's walls and targets. Every state that an episode can reach has the layout of its start, so two
splits without a common layout have no situation in common.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from crbc_envs.sokoban.rules import FLOOR, TARGET, WALL, Room, State

Tiles = NDArray[np.uint8]


def board_digest(room: Room, state: State | None = None) -> str:
    """The hash (hex) of a board: walls, targets, boxes and player. `state` is by default the start."""
    return _digest(room.tiles(state or room.start))


def layout_digest(room: Room) -> str:
    """The hash (hex) of a layout: walls and targets."""
    return _digest(_layout(room))


def near_layouts(room: Room) -> Iterator[str]:
    """The digests of the layouts one wall apart: one wall more, or one less within the outer ring."""
    tiles = _layout(room)
    for cell in np.ndindex(room.height - 2, room.width - 2):
        row, column = cell[0] + 1, cell[1] + 1
        was = tiles[row, column]
        if was != TARGET:
            tiles[row, column] = WALL if was == FLOOR else FLOOR
            yield _digest(tiles)
            tiles[row, column] = was


def _layout(room: Room) -> Tiles:
    tiles = np.zeros(room.height * room.width, dtype=np.uint8)
    tiles[list(room.floor)] = FLOOR
    tiles[list(room.targets)] = TARGET
    return tiles.reshape(room.height, room.width)


def _digest(tiles: Tiles) -> str:
    return digest(min((image.shape, image.tobytes()) for image in images(tiles)))


def digest(form: tuple[tuple[int, ...], bytes]) -> str:
    """The hash (hex) of a canonical form: the smallest (shape, tile codes) of a board's images."""
    (height, width), codes = form
    return hashlib.sha256(b"%dx%d:%b" % (height, width, codes)).hexdigest()


def images(tiles: Tiles) -> list[Tiles]:
    """The eight rotations and reflections of a board, without the walls around its floor."""
    inside = tiles != WALL
    rows, columns = inside.any(axis=1).nonzero()[0], inside.any(axis=0).nonzero()[0]
    cropped = tiles[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return [side[::down, ::right] for side in (cropped, cropped.T) for down in (1, -1) for right in (1, -1)]


def placed(board: Tiles, rng: np.random.Generator, inside: int = 4) -> Tiles:
    """A board within its walls, at a random place and in a random orientation, in `inside` x `inside` cells."""
    ways = images(board)
    image = ways[rng.integers(len(ways))]
    room = np.zeros((inside + 2, inside + 2), dtype=np.uint8)
    top, left = (1 + int(rng.integers(inside - side + 1)) for side in image.shape)
    room[top : top + image.shape[0], left : left + image.shape[1]] = image
    return room
