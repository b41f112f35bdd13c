"""GroupVectorEnv: masked endings, and members that step by themselves."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from sokoban_groups import ID, ONE_BY_ONE, make, play, random_actions, win_one
from worker_play import corridors, plain

from anchors import INVALID, GroupError
from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.sokoban.solver import best_moves, distances
from crbc_envs.vector.workers import WorkerError

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


def test_stepping_before_the_first_reset_raises():
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) first"):
        make().step(["up"] * 6)


@pytest.mark.parametrize(
    ("actions", "error", "why"),
    [
        (["up"] * 5, ValueError, "5 actions for 6 members"),
        (["up"] * 7, ValueError, "7 actions for 6 members"),
        ([], ValueError, "0 actions for 6 members"),
        (["up", "up", "up", None, "up", "up"], ValueError, "member 3 is active and has no action"),
        (["up", "up", "up", "up", "up", 3], TypeError, "member 5 got int"),
    ],
)
def test_a_refused_step_moves_nobody_and_the_next_is_taken(actions, error, why):
    envs, other = make(), make()
    for each in (envs, other):
        each.reset(seed=0)
    with pytest.raises(error, match=why):
        envs.step(actions)
    assert [counts.total for counts in envs.transition_counts()] == [0, 0]
    assert plain(envs.step(["up"] * 6)) == plain(other.step(["up"] * 6))


# ---- errors in the middle of a step ---------------------------------------------------------------


def walk(envs):
    """One episode to the left, as plain data."""
    trace = [envs.reset(seed=1)]
    while envs.active.any():
        trace.append(envs.step(["left", "?", "left"] * 2))
    return plain(trace), repr(envs.groups())


def assert_spoilt(envs):
    """Nothing but a whole reset is possible, and nothing is told of a step that only some have taken."""
    for step in (lambda: envs.step(["left"] * 6), lambda: envs.step_members([0], ["left"])):
        with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
            step()
    with pytest.raises(gymnasium.error.ResetNeeded, match="takes no mask"):
        envs.reset(options={"reset_mask": np.arange(6) < 3})
    for ask in (envs.groups, envs.interned):
        with pytest.raises(GroupError, match="no episode has begun"):
            ask()
    assert not envs.active.any() and envs.transition_counts() == []


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("options", [{}, {"backend": "process", "num_workers": 2}], ids=str)
def test_after_a_member_has_failed_in_a_step_only_reset_goes_on(options, alone):
    given = {"poison": "right", "max_steps": 4}
    with closing(corridors(2, 3, **given, **options)) as envs, closing(corridors(2, 3, **given)) as other:
        envs.reset(seed=0, options={"task": 13})
        envs.step(["left"] * 6)
        step, actions = envs.step, ["left"] * 4 + ["right", "left"]
        if alone:
            step, actions = partial(envs.step_members, [0, 1, 4, 2]), ["left", "left", "right", "left"]
        with pytest.raises((KeyError, WorkerError), match="poison"):
            step(actions)
        assert_spoilt(envs)
        assert walk(envs) == walk(other)


@pytest.mark.parametrize("env_id", [ID, ONE_BY_ONE])
@pytest.mark.parametrize("place", ["members.step", "_recorder.add", "_store_observations"])
@pytest.mark.parametrize("late", [False, True])
def test_after_an_interrupted_step_only_reset_goes_on(env_id, place, late, monkeypatch):
    envs, other = (GroupVectorEnv(env_id, 2, 3, observation="text", max_steps=4) for _ in range(2))
    envs.reset(seed=0)
    envs.step(["up"] * 6)
    *path, name = place.split(".")
    owner = getattr(envs, path[0]) if path else envs
    interrupted = getattr(owner, name)

    def interrupt(*arguments, **options):
        if late:
            interrupted(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            envs.step(["up"] * 6)
    assert_spoilt(envs)
    assert walk(envs) == walk(other)
