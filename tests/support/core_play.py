"""Run by a Python that has the core dependencies alone: every registered id is played to a reward, or refuses in
`make`. Prints one line of JSON: by id, what came of it."""

from __future__ import annotations

import json

import gymnasium
import numpy as np

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.demonstrations import expert_steps
from crbc_envs.errors import RequirementError


class Rewards(gymnasium.Wrapper):
    """Keeps what its environment has paid."""

    def __init__(self, env):
        super().__init__(env)
        self.paid = []

    def step(self, action):
        found = self.env.step(action)
        self.paid.append(found[1])
        return found

    def __getattr__(self, name):
        return getattr(self.env.unwrapped, name)


def played(env_id, **options):
    """What an expert earns in its first episodes, or why the environment was not made."""
    try:
        env = Rewards(gymnasium.make(env_id, disable_env_checker=True, **options).unwrapped)
    except RequirementError as error:
        return {"refused": str(error)}
    demonstrations = expert_steps(env, np.random.default_rng(0))
    while max(env.paid, default=0) <= 0:
        next(demonstrations)
    return {"reward": max(env.paid)}


ids = sorted(env_id for env_id in gymnasium.registry if env_id.startswith("CRBC-"))
found = {env_id: played(env_id) for env_id in ids}
found["textworld"] = played("CRBC-ALFWorld-v0", engine="textworld")
found["gym-sokoban"] = played("CRBC-Sokoban-v0", engine="gym")
print(json.dumps(found))
