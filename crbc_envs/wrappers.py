"""A wrapper for agents with discrete actions and array observations, such as those of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from anchors import INVALID
from crbc_envs.actions import tagged
from crbc_envs.core import AnchorEnv


class DiscreteActions(gymnasium.Wrapper[NDArray[np.uint8], int, Any, str]):
    """An action is an index into `info["admissible_actions"]`, below `num_actions`.

    An index past the end of the list is the malformed action `anchors.INVALID`. Frames stay frames. A text
    becomes its UTF-8 bytes, shape (`length`,) uint8, cut or padded with zeros. `action_masks` is the action
    mask, (num_actions,) bool, that sb3-contrib's MaskablePPO calls for.

    Raises `TypeError` for an environment that is not an `AnchorEnv`, and `ValueError` for a size below 1.
    """

    def __init__(self, env: gymnasium.Env[Any, str], num_actions: int, length: int = 1024) -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, AnchorEnv):
            raise TypeError(f"{env} is not an AnchorEnv, so it has no admissible actions")
        for name, value in (("num_actions", num_actions), ("length", length)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.length = length
        self._require_tags = env.unwrapped.require_tags
        self._admissible: tuple[str, ...] = ()
        self.action_space = Discrete(num_actions)
        self.observation_space = (
            env.observation_space if isinstance(env.observation_space, Box) else Box(0, 255, (length,), np.uint8)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._to_array(observation, info), info

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        wanted = self._admissible[action] if 0 <= action < len(self._admissible) else INVALID
        reply = tagged(wanted) if self._require_tags else wanted
        observation, reward, terminated, truncated, info = self.env.step(reply)
        return self._to_array(observation, info), float(reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Mask of the actions that are admissible now, (num_actions,) bool."""
        return np.arange(self.action_space.n) < len(self._admissible)

    def _to_array(self, observation: Any, info: dict[str, Any]) -> NDArray[np.uint8]:
        self._admissible = info["admissible_actions"]
        if isinstance(observation, np.ndarray):
            return observation
        text = observation.encode("utf-8", errors="replace")[: self.length]
        return np.frombuffer(text.ljust(self.length, b"\0"), dtype=np.uint8).copy()
