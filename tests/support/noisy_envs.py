"""Stochastic environments for groups: noise in the right place, in nested places, and where no group can reach it."""

import gymnasium
import numpy as np
from toy_env import CorridorEnv

from anchors import INVALID


class WindyCorridor(CorridorEnv):
    """A corridor in which one step in three goes the other way. Invalid replies draw noise too."""

    stochastic = True

    def _gust(self):
        return self.np_random.random() < 1 / 3

    def _execute(self, action):
        back = {"left": "right", "right": "left"}
        action = back.get(action, action) if self._gust() else action
        return super()._execute(action if action in self._admissible() else INVALID)


class OwnGenerator(WindyCorridor):
    """Its noise is in a generator of its own, which a group cannot find by itself."""

    def _begin(self, task):
        super()._begin(task)
        self.rng = np.random.default_rng(int(self.np_random.integers(2**31)))

    def _gust(self):
        return self.rng.random() < 1 / 3


class OwnSeeding(OwnGenerator):
    """The same, and it says how its noise is seeded."""

    def seed_noise(self, seed):
        self.rng = np.random.default_rng(seed)


class HiddenNoise(WindyCorridor):
    """Its noise is out of sight: in a list."""

    def _begin(self, task):
        super()._begin(task)
        self.noise = [np.random.default_rng(int(self.np_random.integers(2**31)))]

    def _gust(self):
        return self.noise[0].random() < 1 / 3


class Unseeded(gymnasium.Env):
    """Without Gymnasium's generator: its reset does not call that of `gymnasium.Env`."""

    action_space, observation_space = gymnasium.spaces.Text(9), gymnasium.spaces.Text(9)
    stochastic = True

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return "here", self._info()

    def step(self, action):
        self.steps += 1
        told = {"action": action, "valid": True, "success": self.steps > 2, "score": 0.0}
        return "here", 0.0, self.steps > 2, False, {**self._info(), **told}

    def _info(self):
        return {"anchor": "0" * 32, "admissible_actions": ["go"], "task": "", "task_id": "t", "step": self.steps}


class Tremor(gymnasium.ActionWrapper):
    """A wrapper that turns two steps to the right in five around. Its `np_random` is that of what is inside."""

    def action(self, action):
        return "left" if action == "right" and self.np_random.random() < 0.4 and self.env.unwrapped.cell else action


class OwnTremor(gymnasium.ActionWrapper):
    """The same from a generator of its own."""

    def __init__(self, env):
        super().__init__(env)
        self.rng = np.random.default_rng(0)

    def action(self, action):
        return "left" if action == "right" and self.rng.random() < 0.4 and self.env.unwrapped.cell else action


def trembling(**options):
    return Tremor(WindyCorridor(**options))


def trembling_alone(**options):
    return OwnTremor(WindyCorridor(**options))


IDS = ("Windy-v0", "OwnSeeding-v0", "Trembling-v0", "SlipperyLake-v0")
"""What a group can give noise of its own. The last is registered by `wrapped_envs`."""

for name, made in {
    "Windy-v0": "WindyCorridor",
    "OwnGenerator-v0": "OwnGenerator",
    "OwnSeeding-v0": "OwnSeeding",
    "HiddenNoise-v0": "HiddenNoise",
    "Unseeded-v0": "Unseeded",
    "Trembling-v0": "trembling",
    "TremblingAlone-v0": "trembling_alone",
}.items():
    gymnasium.register(name, entry_point=f"{__name__}:{made}")


class Entropy(WindyCorridor):
    """Its noise is a function of no seed."""

    def _gust(self):
        return np.random.default_rng().random() < 1 / 3


gymnasium.register("Entropy-v0", entry_point=Entropy)
