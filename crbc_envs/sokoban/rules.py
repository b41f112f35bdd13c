"""The rules of Sokoban on small immutable states, and which rooms are the same puzzle.

Cells are flat indices row * width + column. A room is fixed for an episode. A state is the positions of the player
and the boxes. It is hashable and immutable, so it can be cached, compared and shared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Tiles = NDArray[np.uint8]

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
"""Tile codes, with gym-sokoban's numbers."""

SYMBOLS = "#_.*$@+"
"""Symbols by tile code, in XSB, the standard notation of Sokoban. Floor is "_", so that blanks have no meaning."""

LEGEND = MappingProxyType(
    {
        "#": ("wall", "bright_black"),
        "_": ("floor", "bright_black"),
        ".": ("target", "red"),
        "*": ("box on a target", "green"),
        "$": ("box", "yellow"),
        "@": ("you", "cyan"),
        "+": ("you, on a target", "magenta"),
    }
)
"""What each symbol means, and its colour on a terminal."""

_SYMBOL_OF = bytes.maketrans(bytes(range(7)), SYMBOLS.encode())

MOVES = ("up", "down", "left", "right")


class State(NamedTuple):
    player: int
    boxes: frozenset[int]


@dataclass(frozen=True, eq=True)
class Room:
    """All cells outside `floor` are walls. The outermost ring is always wall."""

    height: int
    width: int
    floor: frozenset[int]
    targets: frozenset[int]
    start: State

    @cached_property
    def shifts(self) -> dict[str, int]:
        """The change of the cell index for each move."""
        return dict(zip(MOVES, (-self.width, self.width, -1, 1), strict=True))

    def move(self, state: State, move: str) -> State:
        """The state after a move: walk, push one box, or stay if the way is blocked."""
        shift = self.shifts[move]
        ahead = state.player + shift
        if ahead not in self.floor:
            return state
        if ahead not in state.boxes:
            return State(ahead, state.boxes)
        beyond = ahead + shift
        if beyond not in self.floor or beyond in state.boxes:
            return state
        return State(ahead, state.boxes - {ahead} | {beyond})

    def solved(self, state: State) -> bool:
        return state.boxes == self.targets

    def tiles(self, state: State) -> NDArray[np.uint8]:
        """Tile codes, shape (height, width)."""
        flat = _layout(self).ravel()
        flat[list(state.boxes - self.targets)] = BOX
        flat[list(state.boxes & self.targets)] = BOX_ON_TARGET
        flat[state.player] = PLAYER_ON_TARGET if state.player in self.targets else PLAYER
        return flat.reshape(self.height, self.width)

    def text(self, state: State) -> str:
        """The board as text. See `board_text`."""
        return board_text(self.tiles(state))


def board_text(tiles: NDArray[np.uint8]) -> str:
    """Tile codes (height, width) as text: one line per row, symbols separated by spaces."""
    symbols, width = tiles.tobytes().translate(_SYMBOL_OF).decode(), tiles.shape[1]
    return "\n".join(" ".join(symbols[i : i + width]) for i in range(0, len(symbols), width))


# ---- equal up to rotation, reflection and a shift within the outer wall ----------------------------------
#
# A layout is a room's walls and targets. Every state that an episode can reach has the layout of its start, so two
# splits without a common layout have no situation in common.


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
