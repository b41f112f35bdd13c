"""The original engine: gym-sokoban 0.0.6 (mpSchrader/gym-sokoban, MIT), at a room of this suite."""

from __future__ import annotations

import importlib.resources
import io
import sys
import types
import warnings
from contextlib import redirect_stderr
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import INVALID
from crbc_envs.errors import RequirementError, install_extra
from crbc_envs.sokoban.rules import BOX, BOX_ON_TARGET, FLOOR, MOVES, PLAYER, PLAYER_ON_TARGET, TARGET, Room, State

ENGINES = ("exact", "gym")
PACKAGES = ("gym_sokoban", "gym", "imageio")
"""The packages that the original engine imports."""


def require_engine(name: str) -> None:
    """Raise `RequirementError` if the engine of that name is not installed. It names what has to be installed."""
    missing = [package for package in PACKAGES if find_spec(package) is None] if name == "gym" else []
    if missing:
        packages = ", ".join(missing)
        cure = install_extra("sokoban")
        raise RequirementError(f'engine="gym" uses the original gym-sokoban, and {packages} is not installed: {cure}')


@cache
def gym_sokoban_class() -> type[Any]:
    """gym-sokoban's `SokobanEnv`, with the old interface of gym. Raises `RequirementError` if it is not installed.

    gym-sokoban finds its pictures with `pkg_resources`, which setuptools no longer has. Where that is gone, the one
    function that it calls is put in its place. gym's advice to move to Gymnasium is not printed.
    """
    require_engine("gym")
    gone = find_spec("pkg_resources") is None
    if gone:
        stand_in = types.ModuleType("pkg_resources")
        vars(stand_in)["resource_filename"] = _resource_filename
        sys.modules["pkg_resources"] = stand_in
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            from gym_sokoban.envs.sokoban_env import SokobanEnv
    finally:
        if gone:  # gym-sokoban keeps the one it has; nobody else is to find it
            del sys.modules["pkg_resources"]
    return SokobanEnv


def _resource_filename(package: str, name: str) -> str:
    return str(importlib.resources.files(sys.modules[package].__package__ or package) / name)


def arrays(room: Room) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A room in gym-sokoban's form: the fixed tiles, and the start. A player on a target is only a player there."""
    empty = np.zeros(room.height * room.width, dtype=np.uint8)
    empty[list(room.floor)] = FLOOR
    empty[list(room.targets)] = TARGET
    start = room.tiles(room.start)
    start[start == PLAYER_ON_TARGET] = PLAYER
    return empty.reshape(start.shape), start


class GymGame:
    """One episode of gym-sokoban at a room. `env` is its environment, and `frames` whether each step draws."""

    def __init__(self, room: Room, max_steps: int, frames: bool = True) -> None:
        fixed, start = arrays(room)
        env = gym_sokoban_class()(start.shape, max_steps=max_steps, num_boxes=len(room.targets), reset=False)
        env.room_fixed, env.room_state = fixed, start
        env.player_position = np.argwhere(start == PLAYER)[0]
        env.num_env_steps = env.reward_last = env.boxes_on_target = 0  # as its reset does, for any room
        self.env = env
        self.frames = frames
        self.done = False
        self.won = bool(env._check_if_all_boxes_on_target())
        self._frame: NDArray[np.uint8] | None = None

    def step(self, action: str) -> float:
        """Push or walk, or stay at `INVALID`. Returns the reward."""
        number = 0 if action == INVALID else 1 + MOVES.index(action)
        mode = "rgb_array" if self.frames else "tiny_rgb_array"  # the latter is a tenth of the cost
        seen, reward, done, info = self.env.step(number, observation_mode=mode)
        self._frame = seen if self.frames else None
        self.done, self.won = bool(done), bool(info.get("all_boxes_on_target", False))
        return float(reward)

    def frame(self) -> NDArray[np.uint8]:
        """A copy of the frame that gym-sokoban drew for the last step, or draws now."""
        if self._frame is None:
            self._frame = self.env.render("rgb_array")
        return self._frame.copy()

    @property
    def state(self) -> State:
        """gym-sokoban's board as a state of this suite."""
        board = self.env.room_state.ravel()
        boxes = np.flatnonzero((board == BOX) | (board == BOX_ON_TARGET))
        return State(int(np.flatnonzero(board == PLAYER)[0]), frozenset(boxes.tolist()))
