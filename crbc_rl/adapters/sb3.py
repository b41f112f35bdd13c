"""Stable-Baselines3: whole groups as a VecEnv, and any credit estimator in PPO's rollout buffer.

    envs = GroupVecEnv(VectorDiscreteActions(GroupVectorEnv("CRBC-Sokoban-v0", 8, 8), num_actions=4))
    agent = PPO("CnnPolicy", envs, n_steps=envs.horizon, vf_coef=0.0, rollout_buffer_class=GroupRolloutBuffer,
                rollout_buffer_kwargs={"rounds": envs.rounds, "method": "crbc"})

PPO itself is Stable-Baselines3's. Its callbacks, logger, `save` and `load` work as ever; a loaded agent gets its
environments by `PPO.load(path, env=envs, rollout_buffer_kwargs={"rounds": envs.rounds})`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from anchors import InternedRollouts
from crbc_envs import VectorDiscreteActions
from crbc_rl import credit
from crbc_rl.adapters import require

require("stable-baselines3", "2.6", "3", "sb3")

from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from stable_baselines3.common.vec_env import VecEnv


class Rounds:
    """The finished rounds, on their way from the environments to the buffer. An agent is saved without them."""

    def __init__(self, horizon: int = 0) -> None:
        self.horizon, self.finished = horizon, list[InternedRollouts]()

    def __reduce__(self) -> tuple[Any, ...]:
        return Rounds, ()


class GroupVecEnv(VecEnv):
    """The groups of `envs` in lock step: `horizon` steps are a round, then every group begins a new task.

    A member that has ended idles until the round is over. Its `done` is told once, and its idle rows never reach the
    loss. `horizon` is the environment's limit of steps; every episode has ended by then. `num_tasks` trains on the
    first tasks of the panel alone. `live_steps` counts the steps that were no idling; PPO's own count has both.
    """

    def __init__(self, envs: VectorDiscreteActions, num_tasks: int | None = None) -> None:
        self.envs, self.horizon = envs, envs.env.max_steps
        self.num_tasks = num_tasks or len(envs.env.panel)
        self.rounds = Rounds(self.horizon)
        self.live_steps = self.time = 0
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._rng = np.random.default_rng(0)

    def reset(self) -> Any:
        if self._seeds[0] is not None:
            self._rng = np.random.default_rng(self._seeds[0])
        self._reset_seeds()
        self.time, self.returns = 0, np.zeros(self.num_envs)
        groups = self.envs.env.num_groups
        options = {name: self._rng.integers(most, size=groups).tolist() for name, most in self._draws()}
        return self.envs.reset(options=options)[0]

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        self.live_steps += int(self.envs.active.sum())
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        rewards, done = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.bool_)
        if self.envs.active.any():
            self.observations, rewards, terminated, truncated, told = self.envs.step(self.actions)
            self.returns, done = self.returns + rewards, terminated | truncated
        self.time += 1
        for m in np.flatnonzero(done).tolist():
            infos[m] = {"terminal_observation": self.observations[m], "TimeLimit.truncated": bool(truncated[m])}
            infos[m]["is_success"] = bool(told["success"][m])
            infos[m]["episode"] = {"r": float(self.returns[m]), "l": self.time, "t": 0.0}
        if self.time == self.horizon:
            self.rounds.finished.append(self.envs.interned())
            self.observations = self.reset()
        return self.observations, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * len(self._indices(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("the members of a group are one: set attributes where the GroupVectorEnv is made")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return list(np.asarray(getattr(self.envs, method_name)(*args, **kwargs))[self._indices(indices)])

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(self._indices(indices))

    def _draws(self) -> Sequence[tuple[str, int]]:
        return ("task", self.num_tasks), ("group_seed", 2**31)

    def _indices(self, indices: Any) -> list[int]:
        return list(self._get_indices(indices))


class GroupRolloutBuffer(RolloutBuffer):
    """PPO's buffer with the advantages of `method`, times `scale`, and without the rows of idle members.

    `method` and `options` are as in `credit.advantages`; "gae" keeps Stable-Baselines3's own. Raises `ValueError` if
    `n_steps` is not a multiple of the horizon, or if the environments were stepped from elsewhere. PPO normalises
    advantages by default, which makes `scale` irrelevant.
    """

    def __init__(
        self,
        *args: Any,
        rounds: Rounds,
        method: str | credit.Method = "crbc",
        options: dict[str, Any] | None = None,
        scale: float = 1.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.rounds, self.method, self.options, self.scale = rounds, method, options or {}, scale
        self._rng = np.random.default_rng(seed)
        if not rounds.horizon:
            raise ValueError('the environments are missing: pass rollout_buffer_kwargs={"rounds": envs.rounds}')
        if self.buffer_size % rounds.horizon:
            raise ValueError(f"n_steps={self.buffer_size} is not a multiple of the horizon {rounds.horizon}")

    def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
        super().compute_returns_and_advantage(last_values, dones)
        horizon, finished = self.rounds.horizon, self.rounds.finished
        if len(finished) * horizon != self.buffer_size:
            raise ValueError(
                f"{len(finished)} rounds of {horizon} steps for n_steps={self.buffer_size}: learn alone here"
            )
        live = np.zeros((self.buffer_size, self.n_envs), dtype=np.bool_)
        for number, rollouts in enumerate(finished):
            places = number * horizon + rollouts.step, rollouts.rollout
            live[places] = True
            if self.method != "gae":
                self.advantages[places] = self.scale * credit.advantages_interned(rollouts, self.method, **self.options)
        self.rows = np.flatnonzero(self.swap_and_flatten(live))
        finished.clear()

    def get(self, batch_size: int | None = None) -> Generator[RolloutBufferSamples, None, None]:
        if not self.generator_ready:
            for name in ("observations", "actions", "values", "log_probs", "advantages", "returns"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        order = self._rng.permutation(self.rows)
        size = batch_size or len(order)
        yield from (self._get_samples(order[start : start + size]) for start in range(0, len(order), size))
