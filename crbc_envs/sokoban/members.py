"""The members of a Sokoban group played as one batch: what `SokobanEnv` answers, for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anchors import INVALID, anchor_key
from crbc_envs.actions import requested_action
from crbc_envs.core import Infos, Outcome
from crbc_envs.sokoban.batch import STAY, Boards, SokobanBatch
from crbc_envs.sokoban.render import Image, render, resize
from crbc_envs.sokoban.rules import MOVES, Room, board_text
from crbc_envs.tasks import TaskPanel

ACTIONS = np.array([*MOVES, INVALID], dtype=object)
"""Action texts by their number; `STAY` is what an invalid reply comes to."""

KEPT = 65_536
"""Situations and replies remembered at most, before they are forgotten together."""

KEPT_BYTES = 2**28
"""The same of resized frames, by their size."""

SHORT = 200
"""Replies are remembered up to this length; longer ones hardly repeat."""


class Board(Protocol):
    """What the batch reads of a `SokobanEnv`: its settings, its tasks and how it reads a reply."""

    board_shape: tuple[int, int]
    frame_shape: tuple[int, int, int]
    observation: str
    pixels: int | None
    render_mode: str | None
    data: str
    max_steps: int
    require_tags: bool
    panel: TaskPanel[Room]

    def _admissible(self) -> tuple[str, ...]: ...

    def _executable(self, wanted: str | None) -> str: ...


class SokobanMembers:
    """`num_envs` copies of `env` as `crbc_envs.core.Members`, byte for byte what they would answer
    one by one. A situation is hashed and written out once, however many members come to it."""

    def __init__(self, env: Board, num_envs: int) -> None:
        self._env = env
        self._batch = SokobanBatch(num_envs, *env.board_shape)
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._task = np.full(num_envs, None, dtype=object)
        self._task_id = np.full(num_envs, None, dtype=object)
        self._admissible = _column([env._admissible()] * num_envs)
        self._data = _column([env.data] * num_envs)
        self._known: dict[bytes, tuple[str, str]] = {}
        self._pictures: dict[bytes, Image] = {}
        self._read: dict[str, int] = {}

    # ---- Members ------------------------------------------------------------------------------

    def reset(self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int]) -> Outcome:
        """Begin `tasks[i]` at `members[i]`. Nothing here is left to chance, so the seeds are not looked at."""
        whose = np.asarray(members, dtype=np.intp)
        begun = {index: self._env.panel[index] for index in dict.fromkeys(tasks)}
        boards = {index: task.content.tiles(task.content.start) for index, task in begun.items()}
        if len(whose):
            self._batch.load(np.stack([boards[index] for index in tasks]), whose)
        self._task[whose] = [begun[index].text for index in tasks]
        self._task_id[whose] = [begun[index].id for index in tasks]
        self._steps[whose] = 0
        flags = np.zeros(len(whose), dtype=np.bool_)
        keys = self._keys(whose)
        return Outcome(
            self._observations(whose, keys), np.zeros(len(whose)), flags, flags.copy(), self._infos(whose, keys)
        )

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        whose = np.asarray(members, dtype=np.intp)
        numbers = self._numbers(actions)
        rewards, solved = self._batch.step(numbers, whose)
        self._steps[whose] += 1
        truncated = ~solved & (self._steps[whose] >= self._env.max_steps)
        keys = self._keys(whose)
        infos = self._infos(
            whose,
            keys,
            action=ACTIONS[numbers],
            valid=numbers != STAY,
            success=solved.copy(),
            score=solved.astype(np.float64),
        )
        return Outcome(self._observations(whose, keys), rewards, solved, truncated, infos)

    def render(self) -> tuple[Any, ...]:
        every = np.arange(len(self._batch))
        if self._env.render_mode is None:
            return (None,) * len(every)
        keys = self._keys(every)
        return tuple(self._frames(every, keys) if self._env.render_mode == "rgb_array" else self._labels(keys))

    def close(self) -> None:
        pass

    # ---- inside -------------------------------------------------------------------------------

    def _numbers(self, actions: Sequence[str]) -> NDArray[np.intp]:
        """What the replies ask for, as indices into `ACTIONS`."""
        read = self._read
        numbers = [read.get(reply) for reply in actions]
        if None in numbers:
            if len(read) > KEPT:
                read.clear()
            for i, reply in enumerate(actions):
                if numbers[i] is None:
                    number = self._number(reply)
                    numbers[i] = number
                    if len(reply) <= SHORT:
                        read[reply] = number
        return np.array(numbers, dtype=np.intp)

    def _number(self, reply: str) -> int:
        executed = self._env._executable(requested_action(reply, self._env.require_tags))
        return STAY if executed == INVALID else MOVES.index(executed)

    def _keys(self, whose: Boards) -> list[bytes]:
        """The boards' tile codes as bytes, each of them looked at."""
        tiles = self._batch.tiles[whose].reshape(len(whose), -1)
        keys: list[bytes] = tiles.view(f"V{tiles.shape[1]}").ravel().tolist()
        if len(self._known) > KEPT:
            self._known.clear()
        for key in dict.fromkeys(key for key in keys if key not in self._known):
            board = self._board(key)
            self._known[key] = (anchor_key(board), board_text(board))
        return keys

    def _board(self, key: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(key, dtype=np.uint8).reshape(self._env.board_shape)

    def _labels(self, keys: list[bytes]) -> list[str]:
        known = self._known
        return [known[key][1] for key in keys]

    def _observations(self, whose: Boards, keys: list[bytes]) -> Any:
        return self._frames(whose, keys) if self._env.observation == "rgb" else self._labels(keys)

    def _frames(self, whose: Boards, keys: list[bytes]) -> Image:
        if self._env.pixels is None:
            return self._batch.frames(boards=whose)
        if len(self._pictures) * prod(self._env.frame_shape) > KEPT_BYTES:
            self._pictures.clear()
        for key in keys:
            if key not in self._pictures:
                self._pictures[key] = resize(render(self._board(key)), self._env.frame_shape)
        return np.stack([self._pictures[key] for key in keys])

    def _infos(self, whose: Boards, keys: list[bytes], **after_a_step: NDArray[Any]) -> Infos:
        k, known = len(whose), self._known
        columns = {
            "anchor": _column([known[key][0] for key in keys]),
            "label": _column(self._labels(keys)),
            "admissible_actions": self._admissible[:k].copy(),
            "task": self._task[whose],
            "task_id": self._task_id[whose],
            "data": self._data[:k].copy(),
            "step": self._steps[whose],
            **after_a_step,
        }
        infos: Infos = {}
        for name, column in columns.items():
            infos[name], infos[f"_{name}"] = column, np.ones(k, dtype=np.bool_)
        return infos


def _column(values: list[Any]) -> NDArray[Any]:
    """Values of any kind, each of them one entry, tuples too."""
    return np.fromiter(values, dtype=object, count=len(values))
