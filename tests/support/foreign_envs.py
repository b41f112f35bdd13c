"""Environments that keep the contract of anchors in other ways than by being an AnchorEnv."""

import os

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from anchors import INVALID, anchor_key
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.spaces import UnicodeText


class CountdownEnv(gymnasium.Env):
    """Count down from 3 to 8, a number the seed draws. No AnchorEnv, no panel, no label; "half" grades a failure."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, missing=None):
        self.missing = missing
        self.action_space = UnicodeText(examples=("one", "two", "half"))
        self.observation_space = UnicodeText()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = self.first = int(self.np_random.integers(3, 9))
        self.steps = 0
        return str(self.number), self._info()

    def step(self, action):
        action = action if action in ("one", "two", "half") else INVALID
        self.number -= {"one": 1, "two": 2}.get(action, 0)
        self.steps += 1
        score = 0.5 if action == "half" else int(self.number == 0)  # an int here and a float there
        over = self.number <= 0 or action == "half"
        info = {"action": action, "valid": action != INVALID, "success": score == 1, "score": score}
        return str(self.number), float(score), over, not over and self.steps >= 20, self._info(**info)

    def _info(self, **more):
        info = {
            "anchor": anchor_key(f"{self.number}"),
            "admissible_actions": ["one", "two", "half"],
            "task": "Count down to zero.",
            "task_id": f"countdown/{self.first}",
            "step": self.steps,
            **more,
        }
        return {key: value for key, value in info.items() if key != self.missing}


class NumpyCountdown(CountdownEnv):
    """Tells what it got, and has flags and numbers of NumPy; with `early`, every step is a success and ends nothing."""

    def __init__(self, timeout=60, early=False):
        super().__init__()
        self.timeout, self.early = timeout, early

    def step(self, action):
        self.got = action
        observation, reward, over, cut, info = super().step(action)
        flags = {"success": np.bool_(info["success"] or self.early), "valid": np.bool_(info["valid"])}
        numbers = {"step": np.int64(info["step"]), "score": np.float32(info["score"])}
        return observation, reward, np.bool_(over), cut, {**info, **flags, **numbers}


class Variables(CountdownEnv):
    """Tells an environment variable."""

    def _info(self, **more):
        return super()._info(variable=os.environ.get("A_VARIABLE_OF_NOW", "unset"), **more)


class Hints(gymnasium.Wrapper, RecordConstructorArgs):
    """Adds a hint to the info, and to the label what the hint says."""

    def __init__(self, env, word="hint"):
        RecordConstructorArgs.__init__(self, word=word)
        gymnasium.Wrapper.__init__(self, env)
        self.word = word

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return observation, {**info, "hint": f"{self.word} 0"}

    def step(self, action):
        *rest, info = self.env.step(action)
        return *rest, {**info, "hint": f"{self.word} {info['step']}"}


class Unrecorded(gymnasium.Wrapper):
    """Records no arguments, so Gymnasium cannot make it again from a spec."""


class Numbers(gymnasium.Wrapper):
    """Takes numbers, which a group does not give."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gymnasium.spaces.Discrete(4)


def hinted_sokoban(**options):
    return Hints(SokobanEnv(observation="text", **options), "by the entry point")


def split_countdown(split="train", replies="thought"):
    """A countdown that takes what a run passes. It ends by itself, and names no limit of steps."""
    return CountdownEnv()


def unrecorded_sokoban(**options):
    return Unrecorded(SokobanEnv(observation="text", **options))


def numbered_sokoban(**options):
    return Numbers(SokobanEnv(observation="text", **options))


HINTS = Hints.wrapper_spec(word="by the spec")

gymnasium.register("Countdown-v0", entry_point="foreign_envs:CountdownEnv")
gymnasium.register("Variables-v0", entry_point="foreign_envs:Variables")
gymnasium.register("NumpyCountdown-v0", entry_point="foreign_envs:NumpyCountdown")
gymnasium.register("SplitCountdown-v0", entry_point="foreign_envs:split_countdown")
gymnasium.register("HintedSokoban-v0", entry_point="foreign_envs:hinted_sokoban")
gymnasium.register("UnrecordedSokoban-v0", entry_point="foreign_envs:unrecorded_sokoban")
gymnasium.register("NumberedSokoban-v0", entry_point="foreign_envs:numbered_sokoban")
gymnasium.register(
    "HintsAddedSokoban-v0",
    entry_point="crbc_envs.sokoban.env:SokobanEnv",
    kwargs={"observation": "text"},
    max_episode_steps=9,
    additional_wrappers=(HINTS,),
)
