"""GroupVectorEnv: its shape, and copies that are proved identical."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from sokoban_groups import ID, ONE_BY_ONE, make, play
from worker_play import plain

from anchors import GroupError
from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.env import SokobanEnv

# ---- shape ----------------------------------------------------------------------------------------


def test_it_is_a_gymnasium_vector_environment():
    envs = make()
    assert isinstance(envs, VectorEnv)
    assert envs.num_envs == 6
    assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    obs, _ = envs.reset(seed=0)
    assert obs in envs.observation_space
    assert envs.action_space.sample() in envs.action_space
    assert len(envs.action_space.sample()) == 6
    obs, reward, terminated, truncated, info = envs.step(["up"] * 6)
    assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
    assert reward.shape == terminated.shape == truncated.shape == (6,)
    assert len(obs) == 6 and isinstance(info, dict)


def test_frames_come_as_one_batch():
    envs = GroupVectorEnv(ID, num_groups=2, group_size=2)
    obs, _ = envs.reset(seed=0)
    assert (obs.shape, obs.dtype) == ((4, 96, 96, 3), np.uint8)
    assert obs in envs.observation_space
    kept = obs.copy()
    envs.step(["up", "down", "left", "right"])
    np.testing.assert_array_equal(obs, kept)  # a later step never writes on an earlier batch


@pytest.mark.parametrize("env_id", [ID, ONE_BY_ONE])
def test_writing_on_a_batch_of_frames_changes_no_later_one(env_id):
    envs, untouched = (GroupVectorEnv(env_id, num_groups=1, group_size=3, max_steps=4) for _ in range(2))
    obs, _ = envs.reset(seed=1)
    expected, _ = untouched.reset(seed=1)
    while envs.active.any():
        np.testing.assert_array_equal(obs, expected)
        obs[:] = 7
        actions = ["up", "left", "?"]
        obs, expected = envs.step(actions)[0], untouched.step(actions)[0]
    np.testing.assert_array_equal(obs, expected)


def test_make_vec_gives_one_group():
    envs = gymnasium.make_vec(ID, num_envs=5, observation="text")
    assert isinstance(envs.unwrapped, GroupVectorEnv)
    assert (envs.unwrapped.num_groups, envs.unwrapped.group_size) == (1, 5)
    _, info = envs.reset(seed=7)
    assert len(set(info["anchor"])) == 1


@pytest.mark.parametrize("name", ["num_groups", "group_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", None], ids=repr)
def test_sizes_must_be_positive_integers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a positive integer, got"):
        GroupVectorEnv(ID, **{name: value})


def test_an_environment_without_anchors_is_refused():
    with pytest.raises(TypeError, match="CartPole-v1: info has no 'anchor' at reset; .* crbc_envs.AnchorWrapper"):
        GroupVectorEnv("CartPole-v1")


def test_keyword_options_reach_the_environment():
    envs = make(split="test", max_steps=2, render_mode="ansi")
    _, info = envs.reset(seed=0)
    assert all(task.startswith("sokoban-v3/test/") for task in info["task_id"])
    for _ in range(2):
        _, _, _, truncated, _ = envs.step(["?"] * 6)
    assert truncated.all()
    assert envs.render() == tuple(info["label"])


# ---- identity -------------------------------------------------------------------------------------


def test_copies_of_a_group_start_alike_and_groups_differ():
    envs = make(num_groups=4)
    _, info = envs.reset(seed=3)
    for key in ("anchor", "task_id", "task", "label"):
        table = info[key].reshape(4, 3)
        assert (table == table[:, :1]).all()
    assert len(set(info["task_id"])) == 4


def test_a_member_with_another_panel_is_found_out():
    envs = make()
    envs.members.envs[2].panel = SokobanEnv(split="test").panel
    with pytest.raises(GroupError, match="group 0 is not identical at reset: member 2 has task_id 'sokoban-v3/test/3'"):
        envs.reset(options={"task": 3})


@pytest.mark.parametrize("field", ["id", "text"])
def test_a_member_told_another_task_is_found_out(monkeypatch, field):
    envs = make()
    member = envs.members.envs[4]
    begin = member._begin

    def begin_another(content):
        begin(content)
        member._task = replace(member._task, **{field: "another"})

    monkeypatch.setattr(member, "_begin", begin_another)
    what = {"id": "task_id", "text": "task"}[field]
    with pytest.raises(GroupError, match=f"group 1 is not identical at reset: member 4 has {what} 'another', member 3"):
        envs.reset(seed=0)


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_masked_reset_proves_the_groups_it_covers(monkeypatch, group):
    envs = make(num_groups=3)
    envs.reset(seed=0)
    monkeypatch.setattr(envs.members.envs[3 * group + 2], "_anchor", lambda: "elsewhere")
    mask = np.repeat(np.arange(3) == group, 3)
    with pytest.raises(GroupError, match=f"group {group} is not identical at reset: member {3 * group + 2} has anchor"):
        envs.reset(options={"reset_mask": mask})


def test_a_group_that_failed_its_proof_cannot_be_stepped(monkeypatch):
    envs = make()
    envs.reset(seed=0)
    with monkeypatch.context() as broken:
        broken.setattr(envs.members.envs[1], "_anchor", lambda: "elsewhere")
        with pytest.raises(GroupError, match="not identical"):
            envs.reset(seed=0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(["up"] * 6)


def test_the_same_seed_gives_the_same_bytes():
    one, other = play(make(), seed=5), play(make(), seed=5)
    assert plain(one) == plain(other) and len(one) > 5


def test_tasks_can_be_chosen():
    envs = make()
    assert set(envs.reset(options={"task": 12})[1]["task_id"]) == {"sokoban-v3/train/12"}
    task_id = envs.reset(options={"task": [3, 5]})[1]["task_id"]
    assert task_id.tolist() == ["sokoban-v3/train/3"] * 3 + ["sokoban-v3/train/5"] * 3
    assert envs.reset(options={"task": np.array([3, 5])})[1]["task_id"].tolist() == task_id.tolist()
