"""GroupVectorEnv: identical copies, masked endings, merged counts."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from anchors import FAILURE, INVALID, SUCCESS, GroupError, RolloutGroup, TransitionCounts
from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.sokoban.solver import best_moves, distances

ID = "CRBC-Sokoban-v0"

ONE_BY_ONE = "tests/Sokoban-one-by-one-v0"
"""The same members with no batch of their own, so that a test can look at one, or tamper with it."""


class OneByOne(SokobanEnv):
    def batch(self, num_envs):
        return None


gymnasium.register(ONE_BY_ONE, entry_point=OneByOne)


def make(num_groups=2, group_size=3, **options):
    return GroupVectorEnv(ONE_BY_ONE, num_groups, group_size, observation="text", **options)


def solve(member):
    """The next move of a shortest solution."""
    return best_moves(member.room, member.state, distances(member.room))[0]


def random_actions(envs, rng):
    """A random reply per live member, some of them malformed; None for those that ended."""
    replies = [*MOVES, "jump", "<think>a</think><action>left</action>"]
    return [replies[rng.integers(len(replies))] if live else None for live in envs.active]


def play(envs, seed=0, reset=True, **options):
    """Random moves until every member has ended; what each step returned."""
    rng = np.random.default_rng(seed)
    trace = [envs.reset(seed=seed, **options)] if reset else []
    while envs.active.any():
        trace.append(envs.step(random_actions(envs, rng)))
    return trace


def win_one(envs, m):
    """Member m solves its room while the others make malformed replies, and dodge no end."""
    while envs.active[m]:
        envs.step([solve(envs.members.envs[m]) if i == m else "?" for i in range(envs.num_envs)])


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


def test_step_returns_arrays_of_the_promised_types():
    envs = make()
    envs.reset(seed=0)
    obs, reward, terminated, truncated, info = envs.step(["up"] * 6)
    assert len(obs) == 6
    assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
    assert reward.shape == terminated.shape == truncated.shape == (6,)
    assert isinstance(info, dict)


@pytest.mark.parametrize("name", ["num_groups", "group_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", None], ids=repr)
def test_sizes_must_be_positive_integers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a positive integer, got"):
        GroupVectorEnv(ID, **{name: value})


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="backend must be one of sync, process, ray"):
        GroupVectorEnv(ID, backend="threads")


def test_an_environment_without_anchors_is_refused():
    with pytest.raises(TypeError, match="CartPole-v1 is not an AnchorEnv"):
        GroupVectorEnv("CartPole-v1")


def test_keyword_options_reach_the_environment():
    envs = make(split="test", max_steps=2, render_mode="ansi")
    _, info = envs.reset(seed=0)
    assert all(task.startswith("sokoban-v2/test/") for task in info["task_id"])
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


def test_a_member_at_another_anchor_is_found_out(monkeypatch):
    envs = make()
    monkeypatch.setattr(envs.members.envs[4], "_anchor", lambda: "elsewhere")
    with pytest.raises(
        GroupError, match="group 1 is not identical at reset: member 4 has anchor 'elsewhere', member 3"
    ):
        envs.reset(seed=0)


def test_a_member_with_another_panel_is_found_out():
    envs = make()
    envs.members.envs[2].panel = SokobanEnv(split="test").panel
    with pytest.raises(GroupError, match="group 0 is not identical at reset: member 2 has task_id 'sokoban-v2/test/3'"):
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


def test_identity_is_proved_at_every_reset_not_only_the_first(monkeypatch):
    envs = make()
    envs.reset(seed=0)
    monkeypatch.setattr(envs.members.envs[1], "_anchor", lambda: "elsewhere")
    with pytest.raises(GroupError, match="member 1 has anchor 'elsewhere'"):
        envs.reset(seed=0)


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
    assert len(one) == len(other) > 5
    for left, right in zip(one, other, strict=True):
        assert left[0] == right[0]
        for a, b in zip(left[1:-1], right[1:-1], strict=True):
            np.testing.assert_array_equal(a, b)
        assert left[-1].keys() == right[-1].keys()
        for key in left[-1]:
            np.testing.assert_array_equal(left[-1][key], right[-1][key])


def test_tasks_can_be_chosen():
    envs = make()
    assert set(envs.reset(options={"task": 12})[1]["task_id"]) == {"sokoban-v2/train/12"}
    task_id = envs.reset(options={"task": [3, 5]})[1]["task_id"]
    assert task_id.tolist() == ["sokoban-v2/train/3"] * 3 + ["sokoban-v2/train/5"] * 3
    assert envs.reset(options={"task": np.array([3, 5])})[1]["task_id"].tolist() == task_id.tolist()


def test_reset_options_are_checked():
    envs = make()
    with pytest.raises(ValueError, match="3 tasks for 2 groups"):
        envs.reset(options={"task": [1, 2, 3]})
    with pytest.raises(ValueError, match="unknown option 'tasks'; known: 'task', 'group_seed', 'reset_mask'"):
        envs.reset(options={"tasks": [1, 2]})
    with pytest.raises(IndexError, match="task 100000 is not in the train panel"):
        envs.reset(options={"task": 100_000})
    with pytest.raises(gymnasium.error.ResetNeeded, match="the first reset takes no mask"):
        envs.reset(options={"reset_mask": np.ones(6, dtype=bool)})


# ---- endings --------------------------------------------------------------------------------------


def test_a_member_that_ended_is_never_stepped_again(monkeypatch):
    envs = make(num_groups=1)
    envs.reset(seed=1)
    calls = [0] * 3
    for m, member in enumerate(envs.members.envs):

        def counted(action, m=m, step=member.step):
            calls[m] += 1
            return step(action)

        monkeypatch.setattr(member, "step", counted)
    win_one(envs, 0)
    won_after = calls[0]
    assert 1 <= won_after <= 12
    while envs.active.any():
        envs.step([12345, "?", "?"])  # what is given to a member that ended is not looked at
    assert calls == [won_after, 15, 15]


def test_a_member_that_ended_keeps_its_observation_and_ends_only_once():
    envs = make(num_groups=1)
    envs.reset(seed=1)
    win_one(envs, 1)
    board = envs.members.envs[1].room.text(envs.members.envs[1].state)
    for _ in range(2):
        obs, reward, terminated, truncated, info = envs.step(["?", None, "?"])
        assert (reward.tolist(), obs[1]) == ([-0.1, 0.0, -0.1], board)
        assert not (terminated | truncated).any()
        assert info["_anchor"].tolist() == [True, False, True]
        assert info["anchor"][1] is None
    assert envs.active.tolist() == [True, False, True]


@pytest.mark.parametrize("env_id", [ID, ONE_BY_ONE])
def test_a_member_that_ended_keeps_its_own_frame(env_id):
    envs = GroupVectorEnv(env_id, num_groups=1, group_size=3)
    room = SokobanEnv().panel[0].content
    shown, _ = envs.reset(options={"task": 0})
    state, table = room.start, distances(room)
    while not room.solved(state):
        move = best_moves(room, state, table)[0]
        state = room.move(state, move)
        shown = envs.step(["?", move, "?"])[0]
    assert envs.active.tolist() == [True, False, True]
    home = shown[1].copy()
    for move in ("up", "down"):
        now = envs.step([move, None, move])[0]
        np.testing.assert_array_equal(now[1], home)
        np.testing.assert_array_equal(now[0], now[2])


def test_returned_flags_are_copies():
    envs = make(num_groups=1)
    envs.reset(seed=1)
    _, _, terminated, truncated, _ = envs.step(["?"] * 3)
    terminated[:] = truncated[:] = True
    assert envs.active.all()


def test_a_step_after_everyone_ended_is_refused_and_changes_nothing():
    envs = make(max_steps=1)
    play(envs)
    counts = envs.transition_counts()
    with pytest.raises(gymnasium.error.ResetNeeded, match="every member has ended; call reset"):
        envs.step([None] * 6)
    assert envs.transition_counts() == counts


# ---- members by themselves ------------------------------------------------------------------------


@pytest.mark.parametrize("rgb", [False, True])
def test_members_that_step_by_themselves_play_as_they_do_together(rgb):
    ours = {"observation": "rgb"} if rgb else {}
    together, apart = (GroupVectorEnv(ID, 2, 3, **{"observation": "text", **ours}, max_steps=9) for _ in range(2))
    for envs in (together, apart):
        envs.reset(seed=3)
    rng = np.random.default_rng(0)
    while together.active.any():
        actions = random_actions(together, rng)
        live = np.flatnonzero(together.active)
        seen, rewards, terminated, truncated, infos = together.step(actions)
        order = rng.permutation(live).tolist()
        for part in (order[: len(live) // 2], order[len(live) // 2 :]):
            if not part:
                continue
            outcome = apart.step_members(part, [actions[m] for m in part])
            for place, m in enumerate(part):
                assert np.array_equal(outcome.observations[place], seen[m])
                assert outcome.infos["anchor"][place] == infos["anchor"][m]
            assert outcome.rewards.tolist() == rewards[part].tolist()
            assert outcome.terminated.tolist() == terminated[part].tolist()
            assert outcome.truncated.tolist() == truncated[part].tolist()
        assert apart.transition_counts() == together.transition_counts()
        assert apart.active.tolist() == together.active.tolist()
    assert apart.groups() == together.groups()


def test_a_step_after_members_stepped_by_themselves_shows_what_they_saw_last():
    envs = make(num_groups=1, max_steps=2)
    envs.reset(seed=1)
    outcome = None
    for _ in range(2):
        outcome = envs.step_members([1], ["left"])
    seen = envs.step(["up", None, "up"])[0]
    assert seen[1] == outcome.observations[0]


def test_members_that_cannot_step_are_refused_and_nobody_moves():
    envs = make(num_groups=1, max_steps=1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="no episode has begun"):
        envs.step_members([0], ["up"])
    envs.reset(seed=1)
    envs.step_members([1], ["up"])
    counts = envs.transition_counts()
    with pytest.raises(gymnasium.error.ResetNeeded, match="member 1 has ended"):
        envs.step_members([0, 1], ["up", "up"])
    for members in ([0, 0], []):
        with pytest.raises(ValueError, match="name at least one member, and each one once"):
            envs.step_members(members, ["up"] * len(members))
    with pytest.raises(ValueError, match="shorter|longer"):
        envs.step_members([0, 2], ["up"])
    assert envs.transition_counts() == counts


def test_gymnasiums_statistics_count_every_episode_once():
    envs = RecordEpisodeStatistics(make(num_groups=2))
    rng = np.random.default_rng(0)
    for round_ in range(3):
        envs.reset(seed=round_)
        while envs.unwrapped.active.any():
            envs.step(random_actions(envs.unwrapped, rng))
        rollouts = [rollout for group in envs.unwrapped.groups() for rollout in group.rollouts]
        assert envs.episode_count == 6 * (round_ + 1)
        assert sorted(list(envs.length_queue)[-6:]) == sorted(map(len, rollouts))
        assert sorted(list(envs.return_queue)[-6:]) == pytest.approx(sorted(r.reward for r in rollouts))


def test_gymnasiums_statistics_follow_a_masked_reset():
    envs = RecordEpisodeStatistics(make(num_groups=2, max_steps=4))
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(["?"] * 6)
    mask = np.array([True] * 3 + [False] * 3)
    envs.reset(options={"reset_mask": mask})
    ended = []
    while envs.unwrapped.active.any():
        _, _, _, _, infos = envs.step(["?" if live else None for live in envs.unwrapped.active])
        ended += infos.get("episode", {"l": np.zeros(6)})["l"][infos.get("_episode", np.zeros(6, bool))].tolist()
    assert ended == [4] * 6


def test_infos_are_packed_with_masks():
    envs = make(num_groups=1)
    _, info = envs.reset(seed=1)
    assert info["step"].tolist() == [0, 0, 0]
    assert list(info["admissible_actions"]) == [MOVES] * 3
    _, _, _, _, info = envs.step(["up", "jump", "<think>a</think><action>left</action>"])
    assert info["action"].tolist() == ["up", INVALID, "left"]
    assert info["valid"].tolist() == [True, False, True]
    assert info["step"].tolist() == [1, 1, 1]
    for key in info:
        if not key.startswith("_"):
            assert info[f"_{key}"].tolist() == [True] * 3


@pytest.mark.parametrize("actions", [["up"] * 5, ["up"] * 7, []])
def test_the_number_of_actions_must_match(actions):
    envs = make()
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=f"{len(actions)} actions for 6 members"):
        envs.step(actions)


def test_stepping_before_the_first_reset_raises():
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) first"):
        make().step(["up"] * 6)


@pytest.mark.parametrize(("bad", "error"), [(None, ValueError), (3, TypeError)])
def test_a_refused_step_moves_nobody(bad, error):
    envs = make()
    envs.reset(seed=0)
    with pytest.raises(error):
        envs.step(["up", "up", "up", bad, "up", "up"])
    assert [counts.total for counts in envs.transition_counts()] == [0, 0]


# ---- masked reset ---------------------------------------------------------------------------------


def test_a_mask_restarts_whole_groups_and_leaves_the_others():
    envs = make()
    envs.reset(seed=0)
    envs.step(["up"] * 6)
    before = envs.transition_counts()
    mask = np.array([False] * 3 + [True] * 3)
    options = {"reset_mask": mask, "task": [7, 8]}
    _, info = envs.reset(options=options)
    assert set(options) == {"reset_mask", "task"}  # read, never popped
    assert options["reset_mask"] is mask
    assert mask.tolist() == [False] * 3 + [True] * 3
    assert info["_task_id"].tolist() == mask.tolist()
    assert info["task_id"].tolist() == [None] * 3 + ["sokoban-v2/train/8"] * 3
    assert envs.transition_counts()[0] == before[0]
    assert [counts.total for counts in envs.transition_counts()] == [3, 0]
    _, _, _, _, info = envs.step(["up"] * 6)
    assert info["step"].tolist() == [2, 2, 2, 1, 1, 1]


def test_a_finished_group_can_be_restarted_while_another_plays():
    envs = make(max_steps=2)
    play(envs)
    envs.reset(options={"reset_mask": [True] * 3 + [False] * 3})
    assert envs.active.tolist() == [True] * 3 + [False] * 3
    with pytest.raises(GroupError, match="member 0 has not ended"):
        envs.groups()
    play(envs, seed=1, reset=False)
    assert [len(group) for group in envs.groups()] == [3, 3]


def test_actions_keep_their_names_where_only_some_groups_began_anew():
    envs = make(max_steps=2)
    envs.reset(seed=0)
    for moves in ("up", "down"):
        envs.step([moves] * 6)
    envs.reset(options={"reset_mask": [True] * 3 + [False] * 3})
    for moves in ("left", "up"):
        envs.step([moves] * 3 + [None] * 3)
    played = envs.interned()
    names = [played.action_names[number] for number in played.action]
    assert names == ["left", "up"] * 3 + ["up", "down"] * 3
    assert names == [step.action for group in envs.groups() for r in group.rollouts for step in r.steps]
    labels = [step.label for r in envs.groups()[1].rollouts for step in r.steps]
    assert len(labels) == 6 and all(labels)


def test_a_mask_that_cuts_a_group_is_refused_and_changes_nothing():
    envs = make()
    envs.reset(seed=0)
    envs.step(["up"] * 6)
    with pytest.raises(GroupError, match="the mask selects part of group 1"):
        envs.reset(options={"reset_mask": [True] * 4 + [False] * 2})
    assert [counts.total for counts in envs.transition_counts()] == [3, 3]


def test_a_mask_of_the_wrong_length_is_refused():
    envs = make()
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="5"):
        envs.reset(options={"reset_mask": [True] * 5})


# ---- what a group knows ---------------------------------------------------------------------------


def test_counts_total_the_steps_taken_at_any_time():
    envs = make()
    envs.reset(seed=4)
    rng, taken = np.random.default_rng(4), np.zeros(2, dtype=int)
    while envs.active.any():
        taken += envs.active.reshape(2, 3).sum(axis=1)
        envs.step(random_actions(envs, rng))
        assert [counts.total for counts in envs.transition_counts()] == taken.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_counts_at_the_end_are_those_of_the_rollouts(seed):
    envs = make(num_groups=3, group_size=4)
    play(envs, seed=seed)
    groups = envs.groups()
    assert envs.transition_counts() == [TransitionCounts.from_rollouts(group.rollouts) for group in groups]


def test_counts_are_a_snapshot():
    envs = make(num_groups=1)
    envs.reset(seed=0)
    snapshot = envs.transition_counts()[0]
    envs.step(["up"] * 3)
    assert (snapshot.total, envs.transition_counts()[0].total) == (0, 3)


def test_rollouts_hold_what_was_played():
    envs = make(num_groups=1, group_size=2, max_steps=12)
    _, info = envs.reset(seed=1)
    played, rewards = [[], []], np.zeros(2)
    here = info["anchor"]
    while envs.active.any():
        live = envs.active
        actions = [solve(envs.members.envs[0]) if live[0] else None, "jump"]
        _, reward, _, _, info = envs.step(actions)
        for m in np.flatnonzero(live):
            played[m].append((here[m], info["action"][m]))
        rewards += reward
        here = info["anchor"]
    (group,) = envs.groups()
    assert isinstance(group, RolloutGroup)
    assert group.task == envs.members.envs[0]._info()["task_id"]
    for m, rollout in enumerate(group.rollouts):
        assert [(step.anchor, step.action) for step in rollout.steps] == played[m]
        assert rollout.reward == pytest.approx(rewards[m])
    won, lost = group.rollouts
    assert (won.success, won.truncated, won.invalid) == (True, False, 0)
    assert (lost.success, lost.truncated, lost.invalid) == (False, True, 12)
    assert won.steps[0].label == lost.steps[0].label
    ends = {
        successor: n for (_, _, successor), n in envs.transition_counts()[0].items() if successor in (SUCCESS, FAILURE)
    }
    assert ends == {SUCCESS: 1, FAILURE: 1}


def test_there_are_no_groups_before_the_end():
    envs = make()
    with pytest.raises(GroupError, match="no episode has begun"):
        envs.groups()
    assert not envs.active.any()
    envs.reset(seed=0)
    with pytest.raises(GroupError, match="member 0 has not ended"):
        envs.groups()


def test_there_are_no_counts_before_the_first_reset():
    assert make().transition_counts() == []


def test_a_rollout_keeps_the_anchor_after_its_last_step():
    envs = make(num_groups=1)
    told = {}
    for *_, info in play(envs, seed=3):
        told.update({m: info["anchor"][m] for m in np.flatnonzero(info["_anchor"])})
    (group,) = envs.groups()
    assert [rollout.final_anchor for rollout in group.rollouts] == [told[m] for m in range(3)]


def test_members_of_a_group_share_the_seed_of_their_dynamics():
    def draws(seed):
        envs = make()
        envs.reset(seed=seed, options={"task": [0, 1]})
        return [int(member.np_random.integers(2**31)) for member in envs.members.envs]

    first = draws(5)
    assert first[0] == first[1] == first[2] != first[3] == first[4] == first[5]
    assert first == draws(5) != draws(6)


def test_a_time_limit_of_the_registration_binds_the_members():
    spec = gymnasium.spec("CRBC-Sokoban-v0")
    gymnasium.register("Short-Sokoban-v0", entry_point=spec.entry_point, max_episode_steps=3)
    envs = GroupVectorEnv("Short-Sokoban-v0", num_groups=1, group_size=2)
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(["?", "?"])
    assert not envs.active.any()
    assert all(rollout.truncated for rollout in envs.groups()[0].rollouts)
    gymnasium.registry.pop("Short-Sokoban-v0")
