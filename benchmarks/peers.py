"""Other people's Sokobans, as far as they are installed, each behind one function that steps it.

Every function here raises `ModuleNotFoundError`, with the command that installs what is missing.
"""

from __future__ import annotations

import importlib.util
import random
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from crbc_envs.sokoban.gym_engine import gym_sokoban_class

INSTALL = {
    "gym_sokoban": 'pip install -e ".[sokoban]"',
    "envpool": "pip install envpool",
    "jumanji": "pip install jumanji",
}

Board = tuple[NDArray[np.float64], NDArray[np.float64]]


def need(package: str) -> None:
    """Raises `ModuleNotFoundError`, saying how to get it, where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        name = package.replace("_", "-")
        raise ModuleNotFoundError(f"{name} is not installed; to compare with it: {INSTALL[package]}")


# ---- gym-sokoban ----------------------------------------------------------------------------------


class GymSokoban(gymnasium.Env[Any, Any]):
    """gym-sokoban behind Gymnasium's interface; without `frames` it does not draw, and shows its tile codes."""

    def __init__(self, height: int, width: int, num_boxes: int, frames: bool, seed: int = 0) -> None:
        need("gym_sokoban")
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  what is measured draws from it
        self.frames = frames
        self.env = gym_sokoban_class()(dim_room=(height, width), num_boxes=num_boxes, max_steps=10**9)
        if not frames:
            self.env.get_image = lambda mode, scale: self.env.room_state
        self.observation_space = (
            Box(0, 255, (16 * height, 16 * width, 3), np.uint8) if frames else Box(0, 6, (height, width), np.int64)
        )
        self.action_space = Discrete(9)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.render("rgb_array"), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, _, info = self.env.step(action)
        return obs, float(reward), False, False, info

    def cpu_seconds(self) -> float:
        """CPU time of the process it runs in."""
        return time.process_time()


def room_utils(path: Path) -> types.ModuleType:
    """A board generator by its file. Raises `FileNotFoundError` where there is none."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; it is a room_utils.py that is wanted")
    spec = importlib.util.spec_from_file_location("room_utils", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def their_board(
    module: types.ModuleType, seed: int, height: int = 6, width: int = 6, num_boxes: int = 1, **more: int
) -> Board:
    """The board `module.generate_room` draws for a seed: what never moves, and the start, (H, W) tile codes.

    It seeds and uses the global streams. A board that fails is drawn anew from the streams as they
    are, the way gym-sokoban's reset does it.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  what is measured draws from it
    steps = int(1.7 * (height + width))
    while True:
        try:
            fixed, start, *_ = module.generate_room((height, width), num_steps=steps, num_boxes=num_boxes, **more)
            return fixed, start
        except (RuntimeError, RuntimeWarning):
            continue


# ---- envpool and jumanji --------------------------------------------------------------------------


def envpool_stepper(num_envs: int) -> Callable[[NDArray[np.int64]], object]:
    """envpool's Sokoban-v0: one fixed 10x10 level with four boxes, shown as a grid; it has no frames."""
    need("envpool")
    import envpool

    envs = envpool.make_gymnasium("Sokoban-v0", num_envs=num_envs)
    envs.reset()
    return lambda actions: envs.step(actions.astype(np.int32))


def jumanji_stepper(num_envs: int) -> Callable[[NDArray[np.int64]], object]:
    """jumanji's Sokoban, 10x10 with four boxes, on its toy levels: compiled by JAX for the CPU, as a grid."""
    need("jumanji")
    import jax
    from jumanji.environments import Sokoban
    from jumanji.environments.routing.sokoban.generator import ToyGenerator

    env = Sokoban(generator=ToyGenerator())
    step = jax.jit(jax.vmap(env.step))
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), num_envs))[0]

    def stepper(actions: NDArray[np.int64]) -> object:
        nonlocal state
        state, shown = step(state, actions.astype(np.int32))
        return jax.block_until_ready(shown)

    return stepper


def vector_stepper(envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> Callable[[NDArray[np.int64]], object]:
    """Gymnasium's own vector environments; actions are gym-sokoban's pushes, 1 to 4."""
    envs.reset()
    return lambda actions: envs.step(actions + 1)


def workers_cpu_seconds(envs: gymnasium.vector.AsyncVectorEnv) -> float:
    """CPU time of this process and of the workers of `GymSokoban` environments."""
    spent: Sequence[float] = envs.call("cpu_seconds")
    return time.process_time() + sum(spent)
