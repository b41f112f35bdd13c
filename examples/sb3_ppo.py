"""Stable-Baselines3's PPO learns Sokoban, with the credit of whole groups in place of GAE.

    python examples/sb3_ppo.py                       # a minute: CRBC
    python examples/sb3_ppo.py --method gigpo        # another estimator, or "gae": PPO's own
    python examples/sb3_ppo.py --steps 200000 --seed 1

What is ours stands in `train`: the environments in rounds, the buffer and the callback. The rest is PPO as ever.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from crbc_envs import GroupVectorEnv, VectorDiscreteActions
from crbc_rl.adapters.rounds import Rounds
from crbc_rl.adapters.sb3 import GroupCredit, GroupVecEnv, LiveRolloutBuffer

MOVES, SIDE, FEATURES, TRAIN_TASKS = 4, 6, 128, 2000
LENGTH = 2 * SIDE * SIDE - 1
"""Bytes of a board: a character for each square, with blanks and line ends between."""


class Board(BaseFeaturesExtractor):
    """A small convolution over the characters of the board."""

    def __init__(self, space: Space[Any]) -> None:
        super().__init__(space, FEATURES)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(8, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * SIDE * SIDE, FEATURES),
            torch.nn.ReLU(),
        )
        self.table = torch.nn.Embedding(256, 8)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        squares = text[:, ::2].long().view(-1, SIDE, SIDE)
        return self.layers(self.table(squares).permute(0, 3, 1, 2))


class Until(BaseCallback):
    """Ends training after `steps` live steps, and calls `curve` with their number and the agent now and then."""

    model: PPO

    def __init__(self, rounds: Rounds, steps: int, every: int, curve: Callable[[int, PPO], None]) -> None:
        super().__init__()
        self.rounds, self.steps, self.every, self.curve, self.upcoming = rounds, steps, every, curve, 0

    def _on_rollout_start(self) -> None:
        while self.rounds.live_steps >= self.upcoming:
            self.curve(self.upcoming, self.model)
            self.upcoming += self.every

    def _on_step(self) -> bool:
        return self.rounds.live_steps < self.steps or self.rounds.time != 0


def rounds_of(num_groups: int, group_size: int, split: str, tasks: int) -> Rounds:
    envs = GroupVectorEnv("CRBC-Sokoban-v0", num_groups, group_size, observation="text", split=split)
    return Rounds(VectorDiscreteActions(envs, MOVES, LENGTH), tasks)


def success(agent: PPO, split: str, tasks: int) -> float:
    """The share of the first `tasks` of a split that the agent solves, one rollout each."""
    envs = VectorDiscreteActions(
        GroupVectorEnv("CRBC-Sokoban-v0", tasks, 1, observation="text", split=split), MOVES, LENGTH
    )
    observations, infos = envs.reset(options={"task": list(range(tasks)), "group_seed": list(range(tasks))})
    solved = np.zeros(tasks, dtype=np.bool_)
    while envs.env.active.any():
        observations, _, _, _, infos = envs.step(agent.predict(observations)[0])
        solved |= infos["success"].astype(np.bool_)
    envs.close()
    return float(solved.mean())


def train(
    method: str,
    seed: int,
    steps: int,
    every: int,
    curve: Callable[[int, PPO], None],
    groups: tuple[int, int] = (8, 8),
) -> None:
    """Train for `steps` live steps in (number, size) groups. Group credit needs no critic: vf_coef is 0.

    GAE needs one. It learns far better with networks of its own and normalised rewards.
    """
    rounds = rounds_of(*groups, "train", TRAIN_TASKS)
    envs: VecEnv = GroupVecEnv(rounds)
    gae = method == "gae"
    agent = PPO(
        "MlpPolicy",
        VecNormalize(envs, norm_obs=False) if gae else envs,
        n_steps=2 * rounds.horizon,
        batch_size=240,
        n_epochs=4,
        learning_rate=1e-3,
        vf_coef=0.5 if gae else 0.0,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
        policy_kwargs={"features_extractor_class": Board, "net_arch": [], "share_features_extractor": not gae},
        rollout_buffer_class=LiveRolloutBuffer,
    )
    agent.learn(10 * steps, callback=[Until(rounds, steps, every, curve), GroupCredit(method)])
    curve(rounds.live_steps, agent)
    rounds.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--method", default="crbc")
    parser.add_argument("--steps", type=int, default=60_000, help="live environment steps")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)

    def curve(steps: int, agent: PPO) -> None:
        seen, held_out = success(agent, "train", 256), success(agent, "test", 256)
        on = f"{seen:6.1%} on the train panel, {held_out:6.1%} on the test panel"
        print(f"{steps:8,} live steps   success {on}", flush=True)

    begun = time.process_time()
    groups = (64, 1) if asked.method == "gae" else (8, 8)
    train(asked.method, asked.seed, asked.steps, asked.steps // 4, curve, groups)
    print(f"{time.process_time() - begun:.0f} CPU seconds, the evaluation included")


if __name__ == "__main__":
    main()
