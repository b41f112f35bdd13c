"""What somebody's environment, phi or prompt returns is refused in one sentence: where, what came, what to return."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
import toy_env
from gymnasium.spaces import Discrete

from crbc_envs import AnchorWrapper, ChatEpisode, GroupVectorEnv
from crbc_envs.errors import ContractError
from crbc_envs.prompts import instructed
from crbc_envs.spaces import UnicodeText

REWARDS = [
    (None, "None (NoneType)"),
    (float("nan"), "nan (float)"),
    (np.float32("inf"), "inf (float)"),
    ("1", "'1' (str)"),
    (np.array([1.0, 2.0]), "array([1., 2.]) (ndarray)"),
    (np.array([None]), "None (NoneType)"),
]


class Counter(gymnasium.Env):
    """Counts its steps, and gives the reward that it is told to."""

    action_space, observation_space = Discrete(2), Discrete(100)

    def __init__(self, reward=0.0, seen=True):
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
    """Of the toy corridor, one hook may return something else from step 1 on."""

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


for name, kind in (("WrappedCounter-v0", wrapped), ("OddCorridor-v0", Corridor), ("OddForeign-v0", Foreign)):
    gymnasium.register(name, entry_point=kind)


def refused(env_id, message, action="0", **options):
    """That a step in a group is refused with this message, which is one line."""

    def play():
        envs = GroupVectorEnv(env_id, 1, 2, **options)
        envs.reset(seed=0)
        envs.step([action] * 2)

    with pytest.raises(ContractError, match=re.escape(message)) as told:
        play()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("reward", "shown"), REWARDS)
def test_a_reward_that_is_no_number_is_refused_everywhere(reward, shown):
    wanted = f"step 1: the reward is {shown}; return one finite number"
    refused("WrappedCounter-v0", f"Counter, {wanted}", reward=reward)
    refused("OddCorridor-v0", f"corridor, {wanted}", "right", hook="reward", value=reward)
    refused("OddForeign-v0", f"OddForeign-v0, {wanted}", "right", reward=reward)


@pytest.mark.parametrize("reward", [np.array([0.5]), np.float32(0.5), np.array(0.5), np.array([[0.5]])], ids=repr)
def test_an_array_of_one_number_is_a_reward(reward):
    for env, action in ((wrapped(reward=reward), "0"), (Corridor("reward", reward), "right")):
        env.reset(seed=0)
        gained = env.step(action)[1]
        assert gained == 0.5 and type(gained) is float
    assert wrapped(reward=reward).reset(seed=0)[1]["admissible_actions"] == ("0", "1")


def test_an_observation_of_none_is_refused_where_the_space_has_none():
    message = "step 1: the observation is None; return one of"
    refused("WrappedCounter-v0", f"Counter, {message} Discrete(100)", seen=False)
    refused("OddCorridor-v0", f"corridor, {message} UnicodeText", "right", hook="observation")
    refused("OddForeign-v0", f"OddForeign-v0, {message} UnicodeText", "right", lost=True)

    class Anything(UnicodeText):
        def contains(self, x):
            return True

    env = Corridor("observation")
    env.observation_space = Anything()
    env.reset(seed=0)
    assert env.step("right")[0] is None


@pytest.mark.parametrize("value", [None, [1], {"a": 1}], ids=repr)
def test_a_payload_that_is_none_is_refused_with_its_place(value):
    late = lambda env, seen: value if seen else "start"  # noqa: E731
    shown = "None" if value is None else f"{value!r} ({type(value).__name__})"
    refused("WrappedCounter-v0", f"Counter, step 1: phi returned {shown}; return text, bytes, an array", phi=late)
    refused("OddCorridor-v0", "corridor, step 1: the anchor is", "right", hook="anchor", value=value)
    with pytest.raises(ContractError, match="Counter, seed 0: phi returned"):
        wrapped({"own": lambda env, seen: "x", "state": lambda env, seen: value}, anchor="own").panel[0]


def test_a_prompt_that_is_no_text_is_refused():
    def mute(view):
        """Forgets to return."""

    for template in (mute, instructed(mute)):
        with pytest.raises(ContractError, match=r"corridor, step 0: the prompt .* is None; return its text"):
            ChatEpisode(Corridor(), template).begin(task=0)


def test_phi_and_show_are_asked_once_a_step_and_the_label_is_the_anchors():
    asked = []
    env = wrapped(lambda env, seen: asked.append(seen) or (seen, 1), admissible=lambda env: asked.append("a") or ["0"])
    env.reset(seed=0)
    for step in (1, 2):
        asked.clear()
        info = env.step("0")[4]
        assert asked == [step, "a"] and info["label"] == f"({step}, 1)"
