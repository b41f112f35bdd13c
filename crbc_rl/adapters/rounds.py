"""Groups in rounds, for trainers that step every member at every time step and want a full table of advantages."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from anchors import InternedRollouts
from crbc_envs import VectorDiscreteActions
from crbc_envs.wrappers import GroupWrapper
from crbc_rl import credit
from crbc_rl.errors import ConfigError


class Rounds(GroupWrapper):
    """The groups of `envs` in lock step. `horizon` steps are a round, then every group begins a new task.

    A member that has ended idles until the round is over; `live_steps` counts the steps that were no idling. The
    horizon is the environment's limit of steps, so every episode has ended by then. The last step of a round returns
    the first observations of the next, and those before in `infos["final_obs"]`. `infos["episode"]` has the return
    "r" and the length "l", and `infos["_episode"]` says who ends, as Gymnasium's `RecordEpisodeStatistics`. Tasks are
    drawn from the first `num_tasks` of the panel, by default from all of it; `reset(seed=...)` seeds the draws.

    Raises `ConfigError` for an environment that names no limit of steps.
    """

    env: VectorDiscreteActions
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, envs: VectorDiscreteActions, num_tasks: int | None = None) -> None:
        super().__init__(envs)
        if envs.env.max_steps is None:
            raise ConfigError("a round ends at the limit of steps: register the environment with max_episode_steps")
        self.horizon: int = envs.env.max_steps
        self.num_tasks = num_tasks or len(envs.env.panel)
        self.live_steps = self.time = 0
        self.finished: list[InternedRollouts] = []
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a round."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.time, groups = 0, self.env.env.num_groups
        drawn = {"task": self.num_tasks, "group_seed": 2**31}
        drawn = {name: self._rng.integers(most, size=groups).tolist() for name, most in drawn.items()}
        self._observations, infos = self.env.reset(options={**drawn, **(options or {})})
        self._returns = np.zeros(self.num_envs)
        return self._observations, infos

    def step(
        self, actions: ArrayLike
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step the active members; the actions of the others are ignored."""
        infos: dict[str, Any] = {}
        rewards, terminated, truncated = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), dtype=np.bool_)
        self.live_steps += int(self.env.active.sum())
        if self.env.active.any():
            self._observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self.time += 1
        self._returns = self._returns + rewards
        played = {"r": self._returns, "l": np.full(self.num_envs, self.time)}
        infos |= {"episode": played, "_episode": terminated | truncated}
        if self.time == self.horizon:
            self.finished.append(self.env.interned())
            infos["final_obs"] = self._observations
            self.reset()
        return self._observations, rewards, terminated, truncated, infos

    def advantages(self, num_steps: int, method: str | credit.Method, **options: Any) -> tuple[Any, Any]:
        """The credit of the last `num_steps` time steps, (num_steps, num_envs) float64, and the mask of live steps.

        Raises `ValueError` unless they are whole rounds, each asked for once.
        """
        if len(self.finished) * self.horizon != num_steps or self.time:
            raise ValueError(
                f"{num_steps} steps are wanted, a multiple of the horizon {self.horizon}; {len(self.finished)} rounds "
                f"and {self.time} steps are there. After a stop within a round learn with reset_num_timesteps=True"
            )
        credits, live = np.zeros((num_steps, self.num_envs)), np.zeros((num_steps, self.num_envs), dtype=np.bool_)
        for number, rollouts in enumerate(self.finished):
            places = number * self.horizon + rollouts.step, rollouts.rollout
            live[places], credits[places] = True, credit.advantages_interned(rollouts, method, **options)
        self.finished = []
        return credits, live
