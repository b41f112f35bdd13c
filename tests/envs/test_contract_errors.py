"""What somebody's environment, phi or prompt returns is refused in one sentence: where, what came, what to return."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
import toy_env
from gymnasium.spaces import Discrete

from crbc_envs import AnchorWrapper, ChatEpisode, GroupVectorEnv
from crbc_envs.errors import EnvError
from crbc_envs.prompts import instructed
from crbc_envs.spaces import UnicodeText


class Counter(gymnasium.Env):
    """Counts its steps, and gives the reward that it is told to."""

    action_space, observation_space = Discrete(2), Discrete(100)

    def __init__(self, reward, seen):
        self.reward, self.seen = reward, seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action):
        self.count += 1
        return self.count if self.seen else None, self.reward, False, False, {}


def wrapped(phi=lambda env, seen: seen, reward=0.0, seen=True, **options):
    return AnchorWrapper(Counter(reward, seen), phi, success=lambda gained, *_: gained > 0, tasks=1, **options)


class Corridor(toy_env.CorridorEnv):
    """Of the toy corridor, one hook returns something else from step 1 on."""

    def __init__(self, hook="", value=None, **options):
        super().__init__(**options)
        self.hook, self.value = hook, value

    def _execute(self, action):
        reward = super()._execute(action)
        return self.value if self.hook == "reward" else reward

    def _anchor(self):
        return self.value if self.hook == "anchor" and self._steps else super()._anchor()

    def _observation(self):
        return self.value if self.hook == "observation" and self._steps else super()._observation()


class Foreign(gymnasium.Wrapper):
    """No AnchorEnv: what the corridor returns is checked at the door of the group."""

    def __init__(self, reward=0.0, lost=False):
        super().__init__(toy_env.CorridorEnv())
        self.reward, self.lost = reward, lost

    def step(self, action):
        observation, _, *flags, info = self.env.step(action)
        return (None if self.lost else observation, self.reward, *flags, info)


for name, kind in (("Counter-v0", wrapped), ("Odd-v0", Corridor), ("Foreign-v0", Foreign)):
    gymnasium.register(name, entry_point=kind)


def refused(env_id, message, action="0", **options):
    """That a step in a group is refused with this message."""

    def play():
        envs = GroupVectorEnv(env_id, 1, 2, **options)
        envs.reset(seed=0)
        envs.step([action] * 2)

    with pytest.raises(EnvError, match=re.escape(message)):
        play()


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        (None, "None (NoneType)"),
        (float("nan"), "nan (float)"),
        (np.float32("inf"), "inf (float)"),
        ("1", "'1' (str)"),
        (np.array([1.0, 2.0]), "array([1., 2.]) (ndarray)"),
    ],
)
def test_a_reward_that_is_no_number_is_refused_everywhere(reward, shown):
    wanted = f"step 1: the reward is {shown}; return one finite number"
    refused("Counter-v0", f"Counter, {wanted}", reward=reward)
    refused("Odd-v0", f"corridor, {wanted}", "right", hook="reward", value=reward)
    refused("Foreign-v0", f"Foreign-v0, {wanted}", "right", reward=reward)


@pytest.mark.parametrize("reward", [np.array([0.5]), np.float32(0.5), np.array([[0.5]])], ids=repr)
def test_an_array_of_one_number_is_a_reward(reward):
    for env, action in ((wrapped(reward=reward), "0"), (Corridor("reward", reward), "right")):
        env.reset(seed=0)
        gained = env.step(action)[1]
        assert gained == 0.5 and type(gained) is float


def test_an_observation_of_none_is_refused_where_the_space_has_none():
    message = "step 1: the observation is None; return one of"
    refused("Counter-v0", f"Counter, {message} Discrete(100)", seen=False)
    refused("Odd-v0", f"corridor, {message} UnicodeText", "right", hook="observation")
    refused("Foreign-v0", f"Foreign-v0, {message} UnicodeText", "right", lost=True)
    env = Corridor("observation")
    env.observation_space = type("Anything", (UnicodeText,), {"contains": lambda self, x: True})()
    env.reset(seed=0)
    assert env.step("right")[0] is None


@pytest.mark.parametrize("value", [None, [1]], ids=repr)
def test_a_payload_of_no_stable_form_is_refused_with_its_place(value):
    late = lambda env, seen: value if seen else "start"  # noqa: E731
    refused("Counter-v0", f"Counter, step 1: phi returned {value and '[1] (list)'}; return text, bytes, an", phi=late)
    refused("Odd-v0", "corridor, step 1: the anchor is", "right", hook="anchor", value=value)
    with pytest.raises(EnvError, match="Counter, seed 0: phi returned"):
        wrapped({"own": lambda env, seen: "x", "state": lambda env, seen: value}).panel[0]


def test_a_prompt_that_is_no_text_is_refused():
    def mute(view):
        """Forgets to return."""

    for template in (mute, instructed(mute)):
        with pytest.raises(EnvError, match=r"corridor, step 0: the prompt .* is None; return its text"):
            ChatEpisode(Corridor(), template).begin(task=0)


def test_phi_and_what_is_admissible_are_asked_once_a_step():
    asked = []
    env = wrapped(lambda env, seen: asked.append(seen) or (seen, 1), admissible=lambda env: asked.append("a") or ["0"])
    env.reset(seed=0)
    for step in (1, 2):
        asked.clear()
        info = env.step("0")[4]
        assert asked == [step, "a"] and info["label"] == f"({step}, 1)"
