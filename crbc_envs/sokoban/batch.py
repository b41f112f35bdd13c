"""Many Sokoban boards of one size, stepped together: gym-sokoban's rules, rewards and frames on integer arrays."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crbc_envs.sokoban.render import TILE, Image, Painter, atlas
from crbc_envs.sokoban.rules import BOX, BOX_ON_TARGET, FLOOR, MOVES, PLAYER, PLAYER_ON_TARGET, TARGET

STAY = len(MOVES)
"""The action that changes nothing: gym-sokoban's 0, and what an invalid reply is."""

Tiles = NDArray[np.uint8]
Boards = NDArray[np.intp]


class SokobanBatch:
    """`num_boards` boards of `height` x `width`, all wall until `load`ed.

    `tiles` (num_boards, height, width) uint8 are the boards as they stand, in gym-sokoban's codes with 6
    for a player on a target; `step` plays all of them or those at given indices. There is no episode
    here: nothing is counted, ended or begun anew.
    """

    def __init__(self, num_boards: int, height: int, width: int) -> None:
        area = height * width
        # A step looks two cells ahead. From the outermost ring that may lie outside the board, in a wall of
        # the next one or, after the last board, in a row of walls put there for it; none is ever changed.
        self._flat = np.zeros(num_boards * area + width, dtype=np.uint8)
        self.tiles: Tiles = self._flat[: num_boards * area].reshape(num_boards, height, width)
        self._first = np.arange(num_boards, dtype=np.intp) * area
        self._player = self._first + width + 1
        self._boxes = np.zeros(num_boards, dtype=np.int64)
        self._placed = np.zeros(num_boards, dtype=np.int64)
        self._counted = np.zeros(num_boards, dtype=np.int64)
        self._shift = np.array([-width, width, -1, 1, 0], dtype=np.intp)
        self._painter = Painter(width)
        self._canvas: Image | None = None

    def __len__(self) -> int:
        return len(self.tiles)

    def load(self, tiles: Tiles, boards: Boards | None = None) -> None:
        """Put `tiles` (k, height, width) on the boards at the given indices, or on all.

        As in gym-sokoban, no box counts as placed before the first step. Raises `ValueError` unless every
        board has one player, as many boxes as targets, and walls around it.
        """
        boards = np.arange(len(self)) if boards is None else boards
        count = {code: (tiles == code).sum(axis=(1, 2)) for code in range(TARGET, PLAYER_ON_TARGET + 1)}
        players = count[PLAYER] + count[PLAYER_ON_TARGET]
        ring = tiles[:, [0, -1]].any(axis=(1, 2)) | tiles[:, :, [0, -1]].any(axis=(1, 2))
        wrong = (players != 1) | (count[BOX] != count[TARGET] + count[PLAYER_ON_TARGET]) | ring
        if wrong.any():
            raise ValueError(
                f"load: board {np.flatnonzero(wrong)[0]} is none; it takes one player, as many boxes as targets, "
                "and an outermost ring of wall"
            )
        self.tiles[boards] = tiles
        self._player[boards] = self._first[boards] + np.argmax((tiles >= PLAYER).reshape(len(tiles), -1), axis=1)
        self._boxes[boards] = count[BOX] + count[BOX_ON_TARGET]
        self._placed[boards], self._counted[boards] = count[BOX_ON_TARGET], 0
        if self._canvas is not None:
            self._canvas[boards] = self._painter.draw(tiles)

    def step(
        self, actions: NDArray[np.integer], boards: Boards | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Take `actions` (k,), indices into `MOVES` or `STAY`, on the boards at the given indices, or on all.

        Rewards (k,) and which boards are solved now (k,).
        """
        whose = slice(None) if boards is None else boards
        here = self._player[whose]
        shift = self._shift[actions]
        ahead = here + shift
        beyond = ahead + shift
        flat, rules = self._flat, _rules()
        case = flat[here] * np.intp(49) + flat[ahead] * np.intp(7) + flat[beyond]
        moved, gained = rules.moved[case], rules.gained[case]
        # Where the action is to stay, all three are one cell, and each writes what is there.
        flat[here], flat[ahead], flat[beyond] = rules.here[case], rules.ahead[case], rules.beyond[case]
        if self._canvas is not None:
            self._repaint(here, ahead, beyond, moved)
        placed = self._placed[whose] + gained
        solved = placed == self._boxes[whose]
        rewards = -0.1 + np.sign(placed - self._counted[whose])
        self._player[whose] = here + shift * (moved > 0)
        self._placed[whose] = self._counted[whose] = placed
        rewards[solved] += 10.0
        return rewards, solved

    def frames(self, out: Image | None = None, boards: Boards | None = None) -> Image:
        """The frames of the boards at the given indices, or of all: (k, 16 height, 16 width, 3) uint8.

        Drawn into `out`, a C-contiguous array of that shape, or else into a fresh one. A large fresh array costs
        as much as the drawing: whoever reads frames before the next step should reuse one.
        """
        return self._painter.draw(self.tiles if boards is None else self.tiles[boards], out)

    def live_frames(self) -> Image:
        """The frames of all boards as one array that every later step keeps up to date, cell by cell."""
        if self._canvas is None:
            self._canvas = self.frames()
        return self._canvas

    def _repaint(self, here: Boards, ahead: Boards, beyond: Boards, moved: NDArray[np.int8]) -> None:
        assert self._canvas is not None
        count, height, width = self.tiles.shape
        cells = np.concatenate([here[moved > 0], ahead[moved > 0], beyond[moved > 1]])
        board, cell = np.divmod(cells, height * width)
        row, column = np.divmod(cell, width)
        canvas = self._canvas.reshape(count, height, TILE, width, 3 * TILE)
        canvas[board, row, :, column] = atlas().reshape(7, TILE, 3 * TILE)[self._flat[cells]]


class _Rules(NamedTuple):
    """What a step makes of the three cells it concerns, by 49 here + 7 ahead + beyond: their new codes,
    `moved` (1 a walk, 2 a push) and `gained` boxes on targets."""

    here: NDArray[np.uint8]
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
    for here, ahead, beyond in product(range(7), repeat=3):
        if here in leave and ahead in (FLOOR, TARGET):
            rows.append((leave[here], enter[ahead], beyond, 1, 0))
        elif here in leave and ahead in (BOX, BOX_ON_TARGET) and beyond in receive:
            gained = (beyond == TARGET) - (ahead == BOX_ON_TARGET)
            rows.append((leave[here], enter[ahead], receive[beyond], 2, gained))
        else:
            rows.append((here, ahead, beyond, 0, 0))
    columns = np.array(rows).T
    return _Rules(*columns[:3].astype(np.uint8), *columns[3:].astype(np.int8))
