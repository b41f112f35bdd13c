"""What somebody's environment, phi or prompt returns is refused in one sentence: where, what came, what to return."""

from __future__ import annotations

import re
import threading

import gymnasium
import numpy as np
import pytest
import toy_env
from gymnasium.spaces import Box, Discrete

from crbc_envs import AnchorWrapper, ChatEpisode, GroupVectorEnv
from crbc_envs.errors import EnvError
from crbc_envs.prompts import instructed
from crbc_envs.spaces import UnicodeText
from crbc_envs.vector.members import member_info


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

    def _admissible(self):
        return self.value if self.hook == "admissible" else super()._admissible()

    def _success(self):
        return self.value if self.hook in ("success", "ended") and self._steps else super()._success()

    def _score(self):
        return self.value if self.hook == "score" else super()._score()

    def _ended(self):
        return False if self.hook == "ended" else super()._ended()


class Foreign(gymnasium.Wrapper):
    """No AnchorEnv: what the corridor returns is checked at the door of the group."""

    def __init__(self, reward=0.0, lost=False, more=None):
        super().__init__(toy_env.CorridorEnv())
        self.reward, self.lost, self.more = reward, lost, more or {}

    def step(self, action):
        observation, _, *flags, info = self.env.step(action)
        return (None if self.lost else observation, self.reward, *flags, {**info, **self.more})


class Reused(toy_env.CorridorEnv):
    """Writes every observation into the same array."""

    def __init__(self):
        super().__init__()
        self.observation_space, self.seen = Box(0, 255, (1,), np.uint8), np.zeros(1, np.uint8)

    def _observation(self):
        self.seen[0] = self._steps
        return self.seen


for name, kind in (("Counter-v0", wrapped), ("Odd-v0", Corridor), ("Foreign-v0", Foreign), ("Reused-v0", Reused)):
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


@pytest.mark.parametrize("value", ["left", None, {"left"}, ("left", 1)], ids=repr)
def test_admissible_actions_are_texts_in_an_order(value):
    """One text would be read as its letters."""
    refused("Odd-v0", "the admissible actions are", "left", hook="admissible", value=value)
    if value is not None:
        said = "info['admissible_actions'] is of type set" if value == {"left"} else "the admissible actions are"
        refused("Foreign-v0", said, "left", more={"admissible_actions": value})


@pytest.mark.parametrize("value", [{"left": 1}.keys(), ["left"], np.array(["left"])], ids=repr)
def test_any_texts_in_an_order_are_admissible_and_kept_as_they_were(value):
    env = Corridor("admissible", value)
    assert env.reset(options={"task": 3})[1]["admissible_actions"] == ("left",)


def test_actions_without_an_order_are_refused_of_a_wrapped_environment():
    """Their order would be that of their hashes, another in each process."""
    message = "Counter, step 1: the admissible actions are {'0'} (set); return a list of texts"
    refused("Counter-v0", message, admissible=lambda env: {"0"} if env.count else ["0"])


def test_a_score_of_nine_ninths_is_one():
    env = Corridor("score", sum([1 / 9] * 9))
    env.reset(options={"task": 3})
    assert env.step("left")[4]["score"] == 1.0 < sum([1 / 9] * 9)


@pytest.mark.parametrize("won", [1, np.True_, True], ids=repr)
def test_a_success_of_any_kind_of_truth_is_told_as_a_bool(won):
    env = Corridor("ended", won)
    env.reset(options={"task": 3})
    *_, terminated, _, info = env.step("left")
    assert terminated is info["success"] is True


@pytest.mark.parametrize("value", [float("nan"), 17.0, -0.1, "1", None], ids=repr)
def test_a_score_lies_between_0_and_1(value):
    refused("Odd-v0", "corridor, step 1: the score is", "right", hook="score", value=value)
    if isinstance(value, float):
        refused("Foreign-v0", "Foreign-v0, step 1: the score is", "right", more={"score": value})


def test_a_success_is_true_or_false_and_ends_the_episode():
    refused("Odd-v0", "corridor, step 1: the success is None (NoneType); return True", "right", hook="success")
    envs = GroupVectorEnv("Odd-v0", 1, 2, hook="ended", value=True)
    envs.reset(seed=0)
    envs.step(["right"] * 2)
    assert not envs.active.any() and envs.groups()[0].success_rate == 1.0


def test_what_an_environment_has_seen_stays_though_it_writes_on_in_its_array():
    episode = ChatEpisode(Reused(), "text")
    episode.begin(task=0)
    episode.reply("right")
    asked = str(episode.reply("right"))
    assert all(f"[{step}]" in asked for step in (0, 1, 2))


def test_infos_of_any_kind_leave_a_group_whole():
    more = {"id": 2**70, "stats": {1: 2}, "nested": {"_x": 1}, "_anchor": "hidden", "_own": 5}
    envs = GroupVectorEnv("Foreign-v0", 1, 2, more=more)
    envs.reset(seed=0)
    infos = envs.step(["right"] * 2)[-1]
    assert infos["id"].tolist() == [2**70] * 2 and infos["stats"].tolist() == [{1: 2}] * 2
    assert infos["_anchor"].tolist() == [True, True] and infos["_own"].tolist() == [5, 5]
    assert infos["nested"].tolist() == [{"_x": 1}] * 2
    assert member_info(infos, 1)["stats"] == {1: 2}


def test_an_array_of_another_type_is_refused_with_its_space():
    env = Reused()
    env.seen = np.zeros(1, np.int64)
    gymnasium.register("Typed-v0", entry_point=lambda: env)
    refused("Typed-v0", "corridor: an observation is none of its space Box(0, 255, (1,), uint8)", "right")


def test_an_environment_that_cannot_be_copied_is_refused_with_the_ways_out():
    env = AnchorWrapper(Counter(0.0, True), lambda env, seen: seen, success=lambda *_: False, tasks=1)
    env.unwrapped.env.lock = threading.Lock()
    with pytest.raises(EnvError, match="Counter: cannot be copied .*lock.*; pass a function of a seed"):
        env.reset(seed=0)
