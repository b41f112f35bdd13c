"""The rules of Sokoban on small immutable states.

Cells are flat indices row * width + column. A room is fixed for an episode. A state is the positions of the player
and the boxes. It is hashable and immutable, so it can be cached, compared and shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        flat = np.zeros(self.height * self.width, dtype=np.uint8)
        flat[list(self.floor)] = FLOOR
        flat[list(self.targets)] = TARGET
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


def parse_room(text: str) -> Room:
    """Parse a board in XSB notation. Spaces between symbols are allowed. Raises `ValueError` for an invalid board."""
    rows = [[c for c in line if c != " "] for line in text.strip().splitlines()]
    if not rows:
        raise ValueError("board: it is empty")
    width = len(rows[0])
    for r, row in enumerate(rows):
        if len(row) != width:
            raise ValueError(f"board: row {r} has {len(row)} cells, row 0 has {width}")
    cells = {i: SYMBOLS.find(c) for i, c in enumerate(c for row in rows for c in row)}
    unknown = [i for i, tile in cells.items() if tile < 0]
    if unknown:
        raise ValueError(f"board: cell {unknown[0]} is not one of {SYMBOLS!r}")
    at = lambda *kinds: frozenset(i for i, tile in cells.items() if tile in kinds)  # noqa: E731
    players = at(PLAYER, PLAYER_ON_TARGET)
    boxes, targets = at(BOX, BOX_ON_TARGET), at(TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET)
    if len(players) != 1 or len(boxes) != len(targets) or not boxes:
        raise ValueError(
            f"board: {len(players)} players, {len(boxes)} boxes, {len(targets)} targets; it needs one player "
            "and as many boxes as targets"
        )
    rim = [i for i in cells if i // width in (0, len(rows) - 1) or i % width in (0, width - 1)]
    if any(cells[i] != WALL for i in rim):
        raise ValueError("board: the outermost ring must be wall")
    floor = frozenset(cells) - at(WALL)
    return Room(len(rows), width, floor, targets, State(next(iter(players)), boxes))
