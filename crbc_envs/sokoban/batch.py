"""Steps many Sokoban boards of one size together: gym-sokoban's rules, rewards and frames on integer arrays."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crbc_envs.sokoban.render import TILE, BatchRenderer, Image, atlas
from crbc_envs.sokoban.rules import BOX, BOX_ON_TARGET, FLOOR, MOVES, PLAYER, PLAYER_ON_TARGET, TARGET

STAY = len(MOVES)
"""The action that changes nothing: gym-sokoban's 0. Invalid replies use it."""

Tiles = NDArray[np.uint8]
Boards = NDArray[np.intp]


class SokobanBatch:
    """`num_boards` boards of `height` x `width`. They are all wall until `load` is called.

    `tiles` (num_boards, height, width) uint8 are the current boards, in gym-sokoban's codes with 6 for a player on a
    target. `step` steps all boards, or those at given indices. The class knows no episodes: it counts no steps and
    never resets a board by itself.
    """

    def __init__(self, num_boards: int, height: int, width: int) -> None:
        area = height * width
        # A step reads two cells ahead. From the outermost ring, that cell may be outside the board: in a wall of the
        # next board or, for the last board, in an extra row of walls. These cells are never changed.
        self._flat = np.zeros(num_boards * area + width, dtype=np.uint8)
        self.tiles: Tiles = self._flat[: num_boards * area].reshape(num_boards, height, width)
        self._first = np.arange(num_boards, dtype=np.intp) * area
        self._player = self._first + width + 1
        self._boxes = np.zeros(num_boards, dtype=np.int64)
        self._placed = np.zeros(num_boards, dtype=np.int64)
        self._counted = np.zeros(num_boards, dtype=np.int64)
        self._shift = np.array([-width, width, -1, 1, 0], dtype=np.intp)
        self._renderer = BatchRenderer(width)
        self._canvas: Image | None = None

    def __len__(self) -> int:
        return len(self.tiles)

    def load(self, tiles: Tiles, boards: Boards | None = None) -> None:
        """Set the boards at the given indices, or all, to `tiles` (k, height, width).

        As in gym-sokoban, no box counts as placed before the first step. Raises `ValueError` unless every board has
        one player, as many boxes as targets, and an outermost ring of wall.
        """
        boards = np.arange(len(self)) if boards is None else boards
        count = {code: (tiles == code).sum(axis=(1, 2)) for code in range(TARGET, PLAYER_ON_TARGET + 1)}
        players = count[PLAYER] + count[PLAYER_ON_TARGET]
        ring = tiles[:, [0, -1]].any(axis=(1, 2)) | tiles[:, :, [0, -1]].any(axis=(1, 2))
        wrong = (players != 1) | (count[BOX] != count[TARGET] + count[PLAYER_ON_TARGET]) | ring
        if wrong.any():
            raise ValueError(
                f"load: board {np.flatnonzero(wrong)[0]} is invalid; it needs one player, as many boxes as targets, "
                "and an outermost ring of wall"
            )
        self.tiles[boards] = tiles
        self._player[boards] = self._first[boards] + np.argmax((tiles >= PLAYER).reshape(len(tiles), -1), axis=1)
        self._boxes[boards] = count[BOX] + count[BOX_ON_TARGET]
        self._placed[boards], self._counted[boards] = count[BOX_ON_TARGET], 0
        if self._canvas is not None:
            self._canvas[boards] = self._renderer.draw(tiles)

    def step(
        self, actions: NDArray[np.integer], boards: Boards | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Step the boards at the given indices, or all, with `actions` (k,): indices into `MOVES`, or `STAY`.

        Returns the rewards (k,) and the mask of solved boards (k,).
        """
        chosen = slice(None) if boards is None else boards
        player = self._player[chosen]
        shift = self._shift[actions]
        ahead = player + shift
        beyond = ahead + shift
        flat, rules = self._flat, _rules()
        case = flat[player] * np.intp(49) + flat[ahead] * np.intp(7) + flat[beyond]
        moved, gained = rules.moved[case], rules.gained[case]
        # For `STAY`, all three are the same cell, and each writes its old value.
        flat[player], flat[ahead], flat[beyond] = rules.player[case], rules.ahead[case], rules.beyond[case]
        if self._canvas is not None:
            self._repaint(player, ahead, beyond, moved)
        placed = self._placed[chosen] + gained
        solved = placed == self._boxes[chosen]
        rewards = -0.1 + np.sign(placed - self._counted[chosen])
        self._player[chosen] = player + shift * (moved > 0)
        self._placed[chosen] = self._counted[chosen] = placed
        rewards[solved] += 10.0
        return rewards, solved

    def frames(self, out: Image | None = None, boards: Boards | None = None) -> Image:
        """The frames of the boards at the given indices, or of all: (k, 16 height, 16 width, 3) uint8.

        They are drawn into `out`, a C-contiguous array of that shape, or into a new array. Allocating a large array
        takes as long as drawing, so reuse one if the frames are read before the next step.
        """
        return self.draw(self.tiles if boards is None else self.tiles[boards], out)

    def draw(self, tiles: Tiles, out: Image | None = None) -> Image:
        """The frames of other boards of this size, (k, height, width) tile codes; `out` as in `frames`."""
        return self._renderer.draw(tiles, out)

    def live_frames(self) -> Image:
        """The frames of all boards as one array. Every later step updates its changed cells."""
        if self._canvas is None:
            self._canvas = self.frames()
        return self._canvas

    def _repaint(self, player: Boards, ahead: Boards, beyond: Boards, moved: NDArray[np.int8]) -> None:
        assert self._canvas is not None
        count, height, width = self.tiles.shape
        cells = np.concatenate([player[moved > 0], ahead[moved > 0], beyond[moved > 1]])
        board, cell = np.divmod(cells, height * width)
        row, column = np.divmod(cell, width)
        canvas = self._canvas.reshape(count, height, TILE, width, 3 * TILE)
        canvas[board, row, :, column] = atlas().reshape(7, TILE, 3 * TILE)[self._flat[cells]]


class _Rules(NamedTuple):
    """The effect of a step on its three cells, indexed by 49 player + 7 ahead + beyond.

    It has their new codes, `moved` (1 for a walk, 2 for a push) and `gained`, the change of boxes on targets.
    """

    player: NDArray[np.uint8]
    ahead: NDArray[np.uint8]
    beyond: NDArray[np.uint8]
    moved: NDArray[np.int8]
    gained: NDArray[np.int8]


@cache
def _rules() -> _Rules:
    leave = {PLAYER: FLOOR, PLAYER_ON_TARGET: TARGET}
    enter = {FLOOR: PLAYER, TARGET: PLAYER_ON_TARGET, BOX: PLAYER, BOX_ON_TARGET: PLAYER_ON_TARGET}
    receive = {FLOOR: BOX, TARGET: BOX_ON_TARGET}
    rows = []
    for player, ahead, beyond in product(range(7), repeat=3):
        if player in leave and ahead in (FLOOR, TARGET):
            rows.append((leave[player], enter[ahead], beyond, 1, 0))
        elif player in leave and ahead in (BOX, BOX_ON_TARGET) and beyond in receive:
            gained = (beyond == TARGET) - (ahead == BOX_ON_TARGET)
            rows.append((leave[player], enter[ahead], receive[beyond], 2, gained))
        else:
            rows.append((player, ahead, beyond, 0, 0))
    columns = np.array(rows).T
    return _Rules(*columns[:3].astype(np.uint8), *columns[3:].astype(np.int8))
