"""Many Sokoban boards of one size stepped together: gym-sokoban's rules, rewards and frames on integer arrays, and the
members of groups that play on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from anchors import INVALID, anchor_key
from crbc_envs.actions import Replies, admissible_action, requested_action
from crbc_envs.core import Infos, Outcome
from crbc_envs.sokoban.render import BatchRenderer, Image, render, resize
from crbc_envs.sokoban.rules import (
    BOX,
    BOX_ON_TARGET,
    FLOOR,
    MOVES,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    Room,
    board_text,
)
from crbc_envs.tasks import TaskPanel

STAY = len(MOVES)
"""The action that changes nothing: gym-sokoban's 0. Invalid replies use it."""

ACTIONS = np.array([*MOVES, INVALID], dtype=object)
"""Action texts by number. Number `STAY` is `INVALID`."""

MAX_CACHED = 65_536
"""The maximum number of cached situations and replies. A full cache is cleared."""

MAX_CACHED_BYTES = 2**28
"""The maximum size of the cached resized frames, in bytes."""

MAX_CACHED_REPLY = 200
"""The maximum length of cached replies. Longer ones rarely repeat."""

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

    def __len__(self) -> int:
        return len(self.tiles)

    def load(self, tiles: Tiles, boards: Boards | None = None) -> None:
        """Set the boards at the given indices, or all, to `tiles` (k, height, width).

        Each has one player, as many boxes as targets, and an outermost ring of wall. As in gym-sokoban, no box counts
        as placed before the first step.
        """
        boards = np.arange(len(self)) if boards is None else boards
        loose, placed = ((tiles == code).sum(axis=(1, 2)) for code in (BOX, BOX_ON_TARGET))
        self.tiles[boards] = tiles
        self._player[boards] = self._first[boards] + np.argmax((tiles >= PLAYER).reshape(len(tiles), -1), axis=1)
        self._boxes[boards] = loose + placed
        self._placed[boards], self._counted[boards] = placed, 0

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
        # Numpy 1 would multiply uint8 by a number as uint8.
        case = np.multiply(flat[player], 49, dtype=np.intp) + np.multiply(flat[ahead], 7, dtype=np.intp) + flat[beyond]
        # For `STAY`, all three are the same cell, and each writes its old value.
        flat[player], flat[ahead], flat[beyond] = rules.player[case], rules.ahead[case], rules.beyond[case]
        placed = self._placed[chosen] + rules.gained[case]
        solved = placed == self._boxes[chosen]
        rewards = -0.1 + np.sign(placed - self._counted[chosen])
        self._player[chosen] = player + shift * rules.moved[case]
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


class _Rules(NamedTuple):
    """The effect of a step on its three cells, indexed by 49 player + 7 ahead + beyond.

    It has their new codes, `moved` (1 for a walk or a push) and `gained`, the change of boxes on targets.
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
            rows.append((leave[player], enter[ahead], receive[beyond], 1, gained))
        else:
            rows.append((player, ahead, beyond, 0, 0))
    columns = np.array(rows).T
    return _Rules(*columns[:3].astype(np.uint8), *columns[3:].astype(np.int8))


# ---- members ---------------------------------------------------------------------------------------


class Settings(Protocol):
    """The parts of `SokobanEnv` that the batch uses: its settings, its tasks and its parser of replies."""

    board_shape: tuple[int, int]
    frame_shape: tuple[int, int, int]
    pixels: int | None
    render_mode: str | None
    data: str
    max_steps: int
    replies: Replies
    panel: TaskPanel[Room]

    @property
    def observation(self) -> str: ...

    def _admissible(self) -> tuple[str, ...]: ...


class SokobanMembers:
    """`num_envs` copies of `env` as `crbc_envs.core.Members`. The results equal those of single environments.

    The anchor and label of a situation are computed once for all members.
    """

    def __init__(self, env: Settings, num_envs: int) -> None:
        self._env = env
        self._batch = SokobanBatch(num_envs, *env.board_shape)
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._task = np.full(num_envs, None, dtype=object)
        self._task_id = np.full(num_envs, None, dtype=object)
        self._admissible = _column([env._admissible()] * num_envs, num_envs)
        self._data = _column([env.data] * num_envs, num_envs)
        self._situations: dict[bytes, tuple[str, str]] = {}
        self._resized: dict[bytes, Image] = {}
        self._parsed: dict[str, int] = {}

    # ---- Members ------------------------------------------------------------------------------

    def reset(
        self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int], noise: Sequence[int] | None = None
    ) -> Outcome:
        """Begin task `tasks[i]` at `members[i]`. Seeds and noise are ignored, because nothing here is random."""
        indices = np.asarray(members, dtype=np.intp)
        chosen = {index: self._env.panel[index] for index in dict.fromkeys(tasks)}
        boards = {index: task.content.tiles(task.content.start) for index, task in chosen.items()}
        if len(indices):
            self._batch.load(np.stack([boards[index] for index in tasks]), indices)
        self._task[indices] = [chosen[index].text for index in tasks]
        self._task_id[indices] = [chosen[index].id for index in tasks]
        self._steps[indices] = 0
        flags = np.zeros(len(indices), dtype=np.bool_)
        seen = self._seen(indices)
        return Outcome(
            self._observations(seen), np.zeros(len(indices)), flags, flags.copy(), self._infos(indices, seen)
        )

    def step(self, members: Sequence[int], actions: Sequence[str], shown: bool = True) -> Outcome:
        """As `Members.step`. Unless `shown`, the outcome has no observations."""
        indices = np.asarray(members, dtype=np.intp)
        numbers = self._numbers(actions)
        rewards, solved = self._batch.step(numbers, indices)
        self._steps[indices] += 1
        truncated = ~solved & (self._steps[indices] >= self._env.max_steps)
        seen = self._seen(indices)
        infos = self._infos(
            indices,
            seen,
            action=ACTIONS[numbers],
            valid=numbers != STAY,
            success=solved.copy(),
            score=solved.astype(np.float64),
        )
        return Outcome(self._observations(seen) if shown else None, rewards, solved, truncated, infos)

    def show(self, out: NDArray[Any]) -> None:
        """Draw the current frames of all members into `out`."""
        if self._env.pixels is None:
            self._batch.frames(out)
        else:
            self._frames(self._seen(np.arange(len(self._batch))), out)

    def render(self) -> tuple[Any, ...]:
        indices = np.arange(len(self._batch))
        if self._env.render_mode is None:
            return (None,) * len(indices)
        seen = self._seen(indices)
        return tuple(self._frames(seen) if self._env.render_mode == "rgb_array" else seen.labels.tolist())

    def close(self) -> None:
        pass

    # ---- internals ----------------------------------------------------------------------------

    def _numbers(self, actions: Sequence[str]) -> NDArray[np.intp]:
        """The actions of the replies, as indices into `ACTIONS`."""
        parsed = self._parsed
        numbers = list(map(parsed.get, actions))
        if None in numbers:
            if len(parsed) > MAX_CACHED:
                parsed.clear()
            for i, reply in enumerate(actions):
                if numbers[i] is None:
                    number = self._number(reply)
                    numbers[i] = number
                    if len(reply) <= MAX_CACHED_REPLY:
                        parsed[reply] = number
        return np.array(numbers, dtype=np.intp)

    def _number(self, reply: str) -> int:
        executed = admissible_action(requested_action(reply, self._env.replies), MOVES)
        return STAY if executed == INVALID else MOVES.index(executed)

    def _seen(self, indices: Boards) -> _Seen:
        """What is to be seen of each board. The anchor and label of a situation are computed once."""
        tiles = self._batch.tiles[indices]
        keys: list[bytes] = tiles.reshape(-1).view(f"V{prod(self._env.board_shape)}").tolist()
        known: list[Any] = list(map(self._situations.get, keys))
        if None in known:
            if len(self._situations) > MAX_CACHED:
                self._situations.clear()
            for key in set(keys).difference(self._situations):
                board = self._board(key)
                self._situations[key] = (anchor_key(board), board_text(board))
            known = [self._situations[key] for key in keys]
        return _Seen(tiles, keys, *(_column(map(itemgetter(i), known), len(known)) for i in (0, 1)))

    def _board(self, key: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(key, dtype=np.uint8).reshape(self._env.board_shape)

    def _observations(self, seen: _Seen) -> Any:
        return self._frames(seen) if self._env.observation == "rgb" else seen.labels.tolist()

    def _frames(self, seen: _Seen, out: Image | None = None) -> Image:
        if self._env.pixels is None:
            return self._batch.draw(seen.tiles, out)
        if len(self._resized) * prod(self._env.frame_shape) > MAX_CACHED_BYTES:
            self._resized.clear()
        for key in seen.keys:
            if key not in self._resized:
                self._resized[key] = resize(render(self._board(key)), self._env.frame_shape)
        return np.stack([self._resized[key] for key in seen.keys], out=out)

    def _infos(self, indices: Boards, seen: _Seen, **after_a_step: NDArray[Any]) -> Infos:
        k = len(indices)
        columns = {
            "anchor": seen.anchors,
            "label": seen.labels,
            "admissible_actions": self._admissible[:k].copy(),
            "task": self._task[indices],
            "task_id": self._task_id[indices],
            "data": self._data[:k].copy(),
            "step": self._steps[indices],
            **after_a_step,
        }
        infos: Infos = {}
        masks = np.ones((len(columns), k), dtype=np.bool_)
        for (name, column), mask in zip(columns.items(), masks, strict=True):
            infos[name], infos[f"_{name}"] = column, mask
        return infos


class _Seen(NamedTuple):
    """What is to be seen of k boards: their tile codes, also as bytes, and the anchor and label of each."""

    tiles: Tiles
    keys: list[bytes]
    anchors: NDArray[Any]
    labels: NDArray[Any]


def _column(values: Iterable[Any], count: int) -> NDArray[Any]:
    """An object array with one entry per value, also for tuples."""
    return np.fromiter(values, dtype=object, count=count)
