"""AnchorWrapper: environments of other libraries become AnchorEnvs, with tasks told apart by how they begin."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

import gymnasium
import lake_env
import numpy as np
import pytest
import wrapped_envs  # registers the ids below
from gymnasium.spaces import Box, Discrete, Text
from worker_play import play

import crbc_envs
from anchors import INVALID, anchor_key
from crbc_envs import AnchorWrapper, GroupVectorEnv
from crbc_envs.anchor_wrapper import WRITTEN_OUT, anchor_of, named_actions, written
from crbc_envs.tasks import SPLITS

IDS = ["Lake-v0", "SlipperyLake-v0", "Cliff-v0", "Taxi-v0", "Pole-v0", "DoorKey-v0"]


# ---- every wrapped environment ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*infinity")
@pytest.mark.usefixtures("one_hash_seed")
@pytest.mark.parametrize("env_id", IDS)
def test_the_check_passes(env_id):
    report = crbc_envs.check_anchor_env(gymnasium.make(env_id), tasks=2, episodes=4, fuzz=50, split_tasks=1)
    assert report.skipped == {"rendering": "there is no render mode without a window"}
    assert report.label_collisions == report.aliasing == 0
    assert report.tasks == (1 if env_id == "Cliff-v0" else 2)


@pytest.mark.parametrize("env_id", ["SlipperyLake-v0", "Cliff-v0", "Taxi-v0", "Pole-v0"])
def test_groups_play_alike_here_and_in_worker_processes(env_id):
    def trace(**backend):
        with closing(GroupVectorEnv(env_id, 2, 2, **backend)) as envs:
            return play(envs, 3)

    assert trace(backend="process", num_workers=2) == trace()


# ---- tasks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lake_env.make, wrapped_envs.taxi], ids=["lake", "taxi"])
def test_splits_share_no_beginning_and_a_task_is_named_by_it(make):
    digests = {}
    for number, split in enumerate(SPLITS):
        env = make(split=split, tasks=12)
        tasks = [env.panel[index] for index in range(12)]
        assert all(int(task.digest, 16) % 3 == number for task in tasks)
        digests[split] = {task.digest for task in tasks}
        for index, task in enumerate(tasks):
            _, info = env.reset(options={"task": index})
            assert info["anchor"] == task.digest
            assert info["task_id"] == task.id == f"{env.domain}/{split}/{task.digest}"
            assert env.panel[index] is task
        assert make(split=split).panel[7] == tasks[7]
    assert all(len(found) > 5 for found in digests.values())


def test_two_seeds_that_begin_alike_are_one_task():
    env = wrapped_envs.taxi(tasks=400)
    tasks = [env.panel[index] for index in range(400)]
    assert len({task.content for task in tasks}) > len({task.id for task in tasks})
    assert len({task.id for task in tasks}) == len({task.digest for task in tasks})


def test_one_task_is_the_same_in_every_split():
    starts = [wrapped_envs.cliff(split=split).panel[0] for split in SPLITS]
    assert len({(task.content, task.digest) for task in starts}) == 1
    own = SPLITS[int(starts[0].digest, 16) % 3]
    assert wrapped_envs.cliff(split=own, tasks=9).panel[8].digest == starts[0].digest
    for split in set(SPLITS) - {own}:
        message = rf"CliffWalking: none of 200 seeds begins a task of the {split} split\. .* give tasks=1"
        with pytest.raises(ValueError, match=message):
            wrapped_envs.cliff(split=split, tasks=9).reset(seed=0)


@pytest.mark.parametrize("make", [lake_env.make, wrapped_envs.taxi], ids=["lake", "taxi"])
def test_looking_at_the_panel_leaves_an_episode_alone(make):
    def episode(env, look):
        rng = np.random.default_rng(0)
        trace = [env.reset(seed=1, options={"task": 3})]
        while len(trace) < 30 and not (len(trace) > 1 and (trace[-1][2] or trace[-1][3])):
            if look:
                env.panel.digest(len(trace) + 3)
            trace.append(env.step(str(rng.choice(trace[-1][-1]["admissible_actions"]))))
        return trace

    assert episode(make(), look=True) == episode(make(), look=False)


def test_the_panel_outlives_the_environment():
    env = wrapped_envs.taxi()
    expected = wrapped_envs.taxi().panel[5]
    env.panel[4]
    env.close()
    assert env.panel[5] == expected


class Closing(gymnasium.Env):
    """Begins with what its seed draws, and is gone once it is closed. `left` counts those that are open."""

    action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(1000)
    left: ClassVar[set[int]] = set()

    def __init__(self):
        self.left.add(id(self))

    def __deepcopy__(self, memo):
        return Closing()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert id(self) in self.left, "it is closed"
        return int(self.np_random.integers(1000)), {}

    def step(self, action):
        return 0, 1.0, True, False, {}

    def close(self):
        self.left.discard(id(self))


def closing_env(split="train"):
    return AnchorWrapper(Closing(), lambda env, seen: seen, success=lambda reward, over, info: True, split=split)


def test_a_group_has_its_panel_until_it_is_closed_and_closes_all():
    gymnasium.register("Closing-v0", entry_point=closing_env)
    try:
        envs = GroupVectorEnv("Closing-v0", 2, 2)
        envs.panel.digest(4)
        envs.reset(seed=0)
        envs.close()
        assert not Closing.left
    finally:
        del gymnasium.registry["Closing-v0"]


def test_levels_are_closed_when_the_next_one_is_made():
    made = []

    class Level(gymnasium.Env):
        action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(100)
        open = True

        def __init__(self, seed):
            self.seed = seed
            made.append(self)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            assert seed == self.seed
            return seed, {}

        def close(self):
            self.open = False

    env = AnchorWrapper(Level, lambda env, seen: seen, success=lambda *_: False)
    for task in range(5):
        env.reset(options={"task": task})
        assert [level.open for level in made].count(True) == 1
        assert env.env.open
    env.close()
    assert not any(level.open for level in made)


# ---- noise ---------------------------------------------------------------------------------------------


def walk(env, seed, task=2):
    _, info = env.reset(seed=seed, options={"task": task})
    anchors = [info["anchor"]]
    for _ in range(6):
        _, _, terminated, truncated, info = env.step("right")
        anchors.append(info["anchor"])
        if terminated or truncated:
            break
    return anchors


def test_noise_follows_the_seed_of_the_reset_and_the_beginning_the_task():
    env = lake_env.make(slippery=True)
    walks = {tuple(walk(env, seed)) for seed in range(12)}
    assert len(walks) > 3
    assert len({anchors[0] for anchors in walks}) == 1
    assert walk(env, 5) == walk(lake_env.make(slippery=True), 5)
    assert env.stochastic and not lake_env.make().stochastic


def test_without_stochastic_the_noise_belongs_to_the_task():
    def slippery(seed):
        board = lake_env.generate_random_map(4, seed=seed)
        return gymnasium.make("FrozenLake-v1", desc=board, is_slippery=True)

    env = AnchorWrapper(slippery, lake_env.situation, success=lambda *_: False, actions=("left", "down", "right", "up"))
    assert len({tuple(walk(env, seed)) for seed in range(12)}) == 1


# ---- endings -------------------------------------------------------------------------------------------


def test_success_ends_and_so_does_failure_without_it():
    board = ["SFG", "FFF", "FHF"]
    make = lambda seed: gymnasium.make("FrozenLake-v1", desc=board, is_slippery=False)  # noqa: E731
    names = ("left", "down", "right", "up")
    env = AnchorWrapper(make, lake_env.situation, success=lambda r, t, i: r > 0, actions=names, tasks=1)
    env.reset(seed=0)
    assert env.step("right")[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step("<think>go</think><action> RIGHT</action>")
    assert (reward, terminated, truncated, info["success"], info["score"]) == (1.0, True, False, True, 1.0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("left")
    env.reset(seed=0)
    for action in ("down", "right"):
        env.step(action)
    _, _, terminated, truncated, info = env.step("down")
    assert (terminated, truncated, info["success"]) == (True, False, False)


def test_success_ends_an_episode_that_the_environment_would_go_on_with():
    env = AnchorWrapper(gymnasium.make("CliffWalking-v1"), lambda e, cell: cell, success=lambda r, t, i: True, tasks=1)
    env.reset(seed=0)
    assert env.step("0")[2:4] == (True, False)


def test_the_environments_own_truncation_is_reported():
    env = wrapped_envs.pole(max_steps=500)
    _, info = env.reset(seed=0)
    steps = 0
    truncated = terminated = False
    while not truncated and not terminated:
        _, _, terminated, truncated, info = env.step(("push left", "push right")[steps % 2])
        steps += 1
    assert (steps, truncated, info["success"], info["step"]) == (12, True, False, 12)


def test_an_invalid_reply_takes_no_step_inside():
    env = wrapped_envs.pole(max_steps=500)
    before, start = env.reset(seed=0)
    for _ in range(20):
        seen, reward, terminated, truncated, info = env.step("jump")
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["action"], info["anchor"]) == (INVALID, start["anchor"])
        np.testing.assert_array_equal(seen, before)
        assert seen is not before


def test_the_limit_is_that_of_the_inner_spec_or_a_hundred():
    assert lake_env.make().max_steps == 100
    assert wrapped_envs.pole().max_steps == 12
    assert wrapped_envs.taxi().max_steps == 100
    assert wrapped_envs.pole(max_steps=7).max_steps == 7
    assert (wrapped_envs.pole().domain, wrapped_envs.taxi().domain) == ("CartPole", "TaxiEnv")
    assert wrapped_envs.taxi(domain="cab").panel[0].id.startswith("cab/train/")


# ---- what the agent reads and does -----------------------------------------------------------------------


class Screen(gymnasium.Env):
    """Shows whatever it is given, in one buffer that it writes on later."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 7}  # noqa: RUF012
    action_space, observation_space = gymnasium.spaces.Discrete(2, start=5), gymnasium.spaces.Discrete(1)

    def __init__(self, picture, render_mode=None):
        self.picture, self.render_mode = picture, render_mode
        self.executed = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.picture, {}

    def step(self, action):
        self.executed.append(action)
        if isinstance(self.picture, np.ndarray):
            self.picture += 1
        return self.picture, 0.0, False, False, {}

    def render(self):
        return f"in {self.render_mode}"


def screen(picture, **options):
    return AnchorWrapper(Screen(picture), lambda env, seen: "here", success=lambda *_: False, tasks=1, **options)


@pytest.mark.parametrize(
    ("picture", "shown"),
    [
        ("some text", "some text"),
        (7, "7"),
        (np.arange(3), "[0 1 2]"),
        ({"image": np.zeros(2), "say": "hi"}, "{'image': array([0., 0.]), 'say': 'hi'}"),
    ],
    ids=["text", "number", "array", "dict"],
)
def test_the_agent_reads_text_by_default(picture, shown):
    env = screen(picture)
    assert env.reset(seed=0)[0] == shown
    assert shown in env.observation_space


def test_arrays_are_printed_in_full():
    seen, _ = screen(np.arange(5_000)).reset(seed=0)
    assert "..." not in seen and " 2500 " in seen


def test_a_frame_is_shown_as_it_is_and_never_written_on_again():
    env = screen(np.zeros((4, 5, 3), np.uint8))
    assert env.observation_space == Box(0, 255, (4, 5, 3), np.uint8)
    first, _ = env.reset(seed=0)
    second = env.step("5")[0]
    assert (first.max(), second.max()) == (0, 1)


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.bool_])
def test_arrays_that_are_shown_have_a_space(kind):
    env = screen(3, show=lambda env, seen: np.ones((2, 2), kind))
    seen, _ = env.reset(seed=0)
    assert seen in env.observation_space and env.observation_space.dtype == kind


def test_actions_stand_for_those_of_the_space():
    env = screen(1)
    env.reset(seed=0)
    assert env._admissible() == ("5", "6")
    env.step("6")
    assert env.env.executed == [6]
    named = screen(1, actions=("Wait", "Go on"), replies="tags")
    named.reset(seed=0)
    assert named.step("wait")[-1]["action"] == INVALID
    assert named.step("<think></think><action>GO  ON</action>")[-1]["action"] == "Go on"
    assert named.env.executed == [6]


def test_only_what_is_admissible_now_is_executed():
    env = wrapped_envs.taxi()
    _, info = env.reset(seed=0)
    refused = next(action for action in env._actions if action not in info["admissible_actions"])
    assert not env.step(refused)[-1]["valid"]
    wrong = screen(1, admissible=lambda env: ["5", "jump"])
    with pytest.raises(ValueError, match="admissible gave 'jump', which is none of the actions 5, 6"):
        wrong.reset(seed=0)


@pytest.mark.usefixtures("one_hash_seed")
def test_rendering_is_that_of_the_environment():
    assert screen(1).metadata == {"render_modes": [], "render_fps": 7}
    env = AnchorWrapper(Screen(1, "rgb_array"), lambda e, seen: "", success=lambda *_: False, tasks=1)
    assert (env.metadata["render_modes"], env.render_mode, env.render()) == (["rgb_array"], "rgb_array", "in rgb_array")
    lake = gymnasium.make("Lake-v0", render_mode="rgb_array")
    lake.reset(seed=0)
    assert lake.render().dtype == np.uint8
    assert crbc_envs.check_anchor_env(lake, episodes=4, fuzz=10, split_tasks=1).skipped == {}


# ---- payloads ------------------------------------------------------------------------------------------

PAYLOADS = ["text", "'text'", b"text", 3, 3.0, True, None, (), (3,), (3, "3"), ((3, None), b""), (np.arange(3), 1)]
PAYLOADS += [np.arange(3), np.arange(3.0), np.zeros((0, 3)), *(np.zeros(n) for n in (0, WRITTEN_OUT + 1))]
PAYLOADS += [np.ones(WRITTEN_OUT + 1)]


def test_different_payloads_have_different_anchors_and_labels():
    assert len({anchor_of(payload) for payload in PAYLOADS}) == len(PAYLOADS)
    assert len({written(payload) for payload in PAYLOADS}) == len(PAYLOADS)
    assert max(len(written(payload)) for payload in PAYLOADS) < 100


def test_payloads_keep_their_own_anchor_and_numbers_are_numbers():
    assert anchor_of("text") == anchor_key("text") and anchor_of(np.arange(3)) == anchor_key(np.arange(3))
    assert written((np.int64(3), np.bool_(True))) == "(3, True)"
    assert written(np.arange(4).reshape(2, 2)) == "int64[2, 2] [[0, 1], [2, 3]]"
    assert written(np.arange(4.0)[::-1]) == written(np.array([3.0, 2.0, 1.0, 0.0]))


@pytest.mark.parametrize("payload", [[1], {1}, {"a": 1}, object(), (1, [2]), np.array([None])], ids=type)
def test_payloads_of_no_stable_form_are_refused_at_once(payload):
    with pytest.raises(
        TypeError, match=r"Screen, step 0: (phi returned .*; return text, bytes|an anchor is made from)"
    ):
        AnchorWrapper(Screen(1), lambda env, seen: payload, success=lambda *_: False)


# ---- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (("a", "b"), ValueError, r"actions must be 3 texts, one for each action of Discrete\(3\); got \('a', 'b'\)"),
        ("abc", ValueError, "actions must be 3 texts"),
        (("a", "b", "A "), ValueError, "the actions 'a' and 'A ' are one"),
        (("a", "b", ""), ValueError, "the action '' could never be asked for"),
        (("a", "b", "<action>c"), ValueError, "the action '<action>c' could never be asked for"),
        (("a", "b", INVALID), ValueError, "are one"),
        (("a", "b", 3), TypeError, "actions are named by texts, got 3"),
        ({"a": 0, "b": 3}, ValueError, r"the action 'b' stands for 3, which is not in Discrete\(3\)"),
    ],
)
def test_actions_are_checked(actions, error, message):
    with pytest.raises(error, match=message):
        named_actions(actions, gymnasium.spaces.Discrete(3))


@pytest.mark.parametrize("actions", [None, ("a", "b")])
def test_other_spaces_need_a_mapping(actions):
    space = Box(-1, 1, (2,), np.float32)
    with pytest.raises(TypeError, match="actions must map texts to actions, because the action space is Box"):
        named_actions(actions, space)
    named = named_actions({"still": np.zeros(2, np.float32)}, space)
    assert list(named) == ["still"]


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match="env must be a gymnasium.Env, or make one from a seed; got str"):
        AnchorWrapper("Taxi-v3", None, success=None)
    with pytest.raises(TypeError, match=r"env\(0\) must return a gymnasium.Env, got NoneType"):
        AnchorWrapper(lambda seed: None, None, success=None)
    with pytest.raises(TypeError, match=r"Screen, step 0: show must return text or an array, got \[1\] \(list\)"):
        screen(1, show=lambda env, seen: [1])
    with pytest.raises(ValueError, match="tasks must be at least 1, got 0"):
        wrapped_envs.taxi(tasks=0)
    with pytest.raises(ValueError, match="split must be one of train, validation, test"):
        wrapped_envs.taxi(split="dev")


class Told(gymnasium.Env[int, str]):
    """Its info lists what is valid, and at the end, after three steps, nothing."""

    def __init__(self, cut: bool) -> None:
        self.cut, self.action_space, self.observation_space = cut, Text(9), Discrete(9)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time = 0
        return 0, {"valid": ["go"]}

    def step(self, action: str) -> Any:
        self.time += 1
        over = self.time == 3
        return self.time, 0.0, over and not self.cut, over and self.cut, {} if over else {"valid": ["go"]}


@pytest.mark.parametrize("cut", [False, True])
def test_nothing_is_admissible_after_the_end_however_it_ended(cut: bool) -> None:
    env = AnchorWrapper(Told(cut), phi=lambda env, seen: seen, success=lambda *told: False, admissible="valid", tasks=1)
    env.reset(seed=0)
    *_, (_, _, terminated, truncated, info) = [env.step("go") for _ in range(3)]
    assert (terminated, truncated, list(info["admissible_actions"])) == (not cut, cut, [])
