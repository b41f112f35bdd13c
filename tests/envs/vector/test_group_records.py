"""GroupVectorEnv: masked resets, merged counts and rollouts."""

from __future__ import annotations

import numpy as np
import pytest
from sokoban_groups import make, play, solve

from anchors import FAILURE, SUCCESS, GroupError, RolloutGroup, TransitionCounts

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
    assert info["task_id"].tolist() == [None] * 3 + ["sokoban-v3/train/8"] * 3
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


# ---- what a group knows ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
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
    ends = [(after, n) for (_, _, after), n in envs.transition_counts()[0].items() if after in (SUCCESS, FAILURE)]
    assert dict(ends) == {SUCCESS: 1, FAILURE: 1} and len(ends) == 2


def test_there_are_no_groups_before_the_end():
    envs = make()
    with pytest.raises(GroupError, match="no episode has begun"):
        envs.groups()
    assert not envs.active.any()
    envs.reset(seed=0)
    with pytest.raises(GroupError, match="member 0 has not ended"):
        envs.groups()


def test_members_of_a_group_share_the_seed_of_their_dynamics():
    def draws(seed):
        envs = make()
        envs.reset(seed=seed, options={"task": [0, 1]})
        return [int(member.np_random.integers(2**31)) for member in envs.members.envs]

    first = draws(5)
    assert first[0] == first[1] == first[2] != first[3] == first[4] == first[5]
    assert first == draws(5) != draws(6)
