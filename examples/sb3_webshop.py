"""Stable-Baselines3's PPO shops in WebShop: texts become numbers, and nothing is cut on the way.

    pip install stable-baselines3
    python examples/sb3_webshop.py              # hashed words of the page, half a minute
    python examples/sb3_webshop.py --bytes      # the bytes of the page

`DiscreteActions` numbers the admissible actions. A search needs words, and here its one query is the task's text. The
page reaches the agent as hashed words, made below the wrapper, or as its bytes. Success is rare, so the reward is the
score of the purchase, 0 to 1.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from crbc_envs import DiscreteActions

SHOP: dict[str, Any] = {"category": "electronics", "per_page": 3, "max_steps": 8}
NUM_ACTIONS, LENGTH = 64, 4096  # random play meets 40 actions and 2,530 bytes: DiscreteActions.measure
FEATURES = 256


class Result(NamedTuple):
    """What was bought: purchases, mean score and successes per episode, each in [0, 1]."""

    purchases: float
    score: float
    success: float

    def __str__(self) -> str:
        return f"purchases {self.purchases:6.1%}   score {self.score:.3f}   success {self.success:6.1%}"


class Shopper(gymnasium.Wrapper[Any, int, Any, int]):
    """The reward is the score of the purchase, and a number past the last action counts from the first again.

    PPO has no action masks. Without the second, nine of ten steps of a new agent are malformed actions.
    """

    env: DiscreteActions

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(int(action) % len(self.env.texts))
        return observation, info["score"], terminated, truncated, info


def hashed_words(page: str) -> NDArray[np.float32]:
    """Which words occur, (FEATURES,) of 0 and 1. Some words share a place."""
    features = np.zeros(FEATURES, dtype=np.float32)
    features[[zlib.crc32(word.encode()) % FEATURES for word in re.findall(r"[a-z0-9]+", page.lower())]] = 1
    return features


def task_text(info: dict[str, Any]) -> list[str]:
    return [info["task"]]


def make_env(split: str = "train", as_bytes: bool = False) -> gymnasium.Env[Any, int]:
    env = gymnasium.make("crbc_envs:CRBC-WebShop-v0", split=split, **SHOP)
    if not as_bytes:
        env = TransformObservation(env, hashed_words, Box(0, 1, (FEATURES,), np.float32))
    return Shopper(DiscreteActions(env, NUM_ACTIONS, LENGTH, queries=task_text))


def evaluate(env: gymnasium.Env[Any, int], policy: Callable[[Any], int], episodes: int) -> Result:
    totals = np.zeros(3)
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(policy(observation))
            over = terminated or truncated
        totals += terminated, info["score"], info["success"]
    return Result(*(totals / episodes).tolist())


def main(steps: int = 16_384, episodes: int = 300, seed: int = 0, as_bytes: bool = False) -> tuple[Result, Result]:
    """The results of a random policy and of the trained one, on the test tasks."""
    torch.set_num_threads(1)
    test, rng = make_env("test", as_bytes), np.random.default_rng(seed)
    before = evaluate(test, lambda _: int(rng.integers(NUM_ACTIONS)), episodes)
    print(f"random policy        {before}", flush=True)
    envs = make_vec_env(make_env, n_envs=8, seed=seed, env_kwargs={"as_bytes": as_bytes})
    agent = PPO(
        "MlpPolicy", envs, learning_rate=1e-3, n_steps=128, batch_size=128, ent_coef=0.01, seed=seed, device="cpu"
    )
    agent.learn(steps)
    after = evaluate(test, lambda observation: int(agent.predict(observation)[0]), episodes)
    print(f"after {steps:5} steps    {after}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO shops in WebShop.")
    parser.add_argument("--steps", type=int, default=16_384)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bytes", dest="as_bytes", action="store_true")
    main(**vars(parser.parse_args()))
