"""Stable-Baselines3: whole groups as a VecEnv, and any credit estimator in PPO.

    rounds = Rounds(VectorDiscreteActions(GroupVectorEnv("CRBC-Sokoban-v0", 8, 8), num_actions=4))
    agent = PPO("CnnPolicy", GroupVecEnv(rounds), n_steps=rounds.horizon, vf_coef=0.0,
                rollout_buffer_class=LiveRolloutBuffer)
    agent.learn(100_000, callback=GroupCredit("crbc"))

PPO itself is Stable-Baselines3's: its callbacks, logger, `save` and `load` work as ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crbc_rl.adapters import require

require("stable-baselines3", "2.8", "2.10", "sb3")

from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from crbc_rl.adapters.rounds import Rounds


class GroupVecEnv(VecEnv):
    """Groups in rounds. A member that has ended idles until its round is over; its end is told once."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        super().__init__(rounds.num_envs, rounds.single_observation_space, rounds.single_action_space)

    def reset(self) -> Any:
        self.rounds.finished = []  # `learn` begins with a reset, and may have been stopped before credit was given
        observations, _ = self.rounds.reset(seed=self._seeds[0], options=self._options[0])
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        observations, rewards, terminated, truncated, vector_infos = self.rounds.step(self.actions)
        infos: list[dict[str, Any]] = [{} for _ in rewards]
        for m in np.flatnonzero(terminated | truncated).tolist():
            infos[m] = {"is_success": bool(vector_infos["success"][m]), "TimeLimit.truncated": bool(truncated[m])}
            infos[m]["terminal_observation"] = vector_infos.get("final_obs", observations)[m]
            infos[m]["episode"] = {name: vector_infos["episode"][name][m].item() for name in "rl"} | {"t": 0.0}
        return observations, rewards.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        self.rounds.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        holder = self.rounds if hasattr(self.rounds, attr_name) else self.rounds.env
        return [getattr(holder, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("members of a group are alike: set attributes where the GroupVectorEnv is made")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        of_all = getattr(self.rounds.env, method_name)(*args, **kwargs)
        return [of_all[m] for m in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """A member is as if in SB3's `Monitor`: `info["episode"]` has its return and length, without idle steps."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]


class LiveRolloutBuffer(RolloutBuffer):
    """PPO's buffer without the rows of idle members, which `GroupCredit` finds."""

    rows: Any = None

    def reset(self) -> None:
        super().reset()
        self.rows = None

    def get(self, batch_size: int | None = None) -> Any:
        if self.rows is None:
            raise ValueError("no credit was given: call learn(..., callback=GroupCredit(...))")
        next(super().get(1))  # flattens the columns, once
        order, size = np.random.permutation(self.rows), batch_size or len(self.rows)  # noqa: NPY002  PPO seeds it
        yield from (self._get_samples(order[start : start + size]) for start in range(0, len(order), size))


class GroupCredit(BaseCallback):
    """Gives each rollout of the buffer the credit of `method`, with options as in `credit.advantages`.

    "gae" keeps Stable-Baselines3's own. PPO normalises the advantages of a mini-batch, unless it is made with
    `normalize_advantage=False`. Raises `ValueError` if `n_steps` is not a multiple of the horizon.
    """

    model: OnPolicyAlgorithm

    def __init__(self, method: Any = "crbc", **options: Any) -> None:
        super().__init__()
        self.method, self.options = method, options

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        inner: Any = self.training_env.unwrapped
        rounds, own = inner.rounds, self.method == "gae"
        buffer: Any = self.model.rollout_buffer
        credits, live = rounds.advantages(self.model.n_steps, "grpo" if own else self.method, **self.options)
        buffer.rows = np.flatnonzero(buffer.swap_and_flatten(live))
        buffer.advantages = buffer.advantages if own else credits.astype(np.float32)
        self.logger.record("time/live_steps", rounds.live_steps)
