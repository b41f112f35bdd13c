"""Steps, rollouts and groups: what they refuse, and that they survive JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from strategies import group, groups, rollout

from anchors import FAILURE, INVALID, SUCCESS, GroupError, InternedRollouts, Rollout, RolloutGroup, Step


def test_a_rollout_without_steps_is_refused():
    with pytest.raises(GroupError, match="rollout: it has no steps"):
        Rollout([], success=True)


@pytest.mark.parametrize("anchor", ["", None, 3], ids=repr)
def test_a_step_without_an_anchor_is_refused_by_its_number(anchor):
    with pytest.raises(GroupError, match="step 1: an anchor is a text"):
        Rollout([Step("s", "a"), Step(anchor, "a")], success=False)


@pytest.mark.parametrize("action", ["", None, 2], ids=repr)
def test_a_step_without_an_action_is_refused_by_its_number(action):
    with pytest.raises(GroupError, match=f"step 2: an action is a text that is not empty, got {action!r}"):
        Rollout([Step("s", "a"), Step("s", "a"), Step("s", action)], success=False)


@pytest.mark.parametrize("boundary", [SUCCESS, FAILURE])
def test_a_boundary_name_is_no_anchor(boundary):
    with pytest.raises(GroupError, match=f"step 1 uses the boundary name '{boundary}'"):
        Rollout([Step("s", "a"), Step(boundary, "a")], success=True)


@pytest.mark.parametrize("outcome", [0.5, 2, -1, None, "yes", float("nan")], ids=repr)
def test_an_outcome_that_is_not_binary_is_refused(outcome):
    with pytest.raises(GroupError, match="the outcome must be binary, got success="):
        Rollout([Step("s", "a")], success=outcome)


@pytest.mark.parametrize("outcome", [1, np.True_, np.int64(1), 1.0], ids=repr)
def test_a_binary_outcome_becomes_a_plain_bool(outcome):
    assert Rollout([Step("s", "a")], success=outcome).success is True


def test_success_and_truncation_exclude_each_other():
    with pytest.raises(GroupError, match="both succeed and be truncated"):
        Rollout([Step("s", "a")], success=True, truncated=True)


def test_an_empty_group_is_refused():
    with pytest.raises(GroupError, match="group: it has no rollouts"):
        RolloutGroup([])


def test_members_that_start_apart_are_refused_by_their_number():
    members = [rollout("s:a +"), rollout("s:b -"), rollout("m:a +")]
    with pytest.raises(GroupError, match="group 'task 3': rollout 2 starts at anchor m, rollout 0 at s"):
        RolloutGroup(members, "task 3")


def test_a_rollout_counts_its_steps_rewards_and_malformed_replies():
    played = Rollout([Step("s", "a", -0.1), Step("s", INVALID, -0.1), Step("m", "b", 10.9)], success=True)
    assert (len(played), played.invalid, played.reward) == (3, 1, pytest.approx(10.7))
    assert [step.valid for step in played.steps] == [True, False, True]


def test_the_success_rate_is_the_share_of_successes():
    assert group("s:a +", "s:a -", "s:b -", "s:b -").success_rate == 0.25


def test_rollouts_are_frozen_and_take_any_iterable():
    played = Rollout((step for step in [Step("s", "a")]), success=False)
    assert played.steps == (Step("s", "a"),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        played.success = True


def test_the_label_never_takes_part_in_equality():
    assert Step("s", "a", 1.0, "a room") == Step("s", "a", 1.0, "another")
    assert Step("s", "a", 1.0) != Step("s", "a", 2.0)


@given(groups())
def test_a_group_survives_json(drawn):
    assert RolloutGroup.from_dict(json.loads(json.dumps(drawn.to_dict()))) == drawn


def test_rewards_labels_truncation_and_task_survive_json():
    steps = [Step("s", "a", -0.1, "start"), Step("m", INVALID, 0.25, "näh \U0001f600")]
    written = RolloutGroup([Rollout(steps, False, truncated=True), Rollout(steps, True)], "sokoban/train/12")
    read = RolloutGroup.from_dict(json.loads(json.dumps(written.to_dict())))
    assert read == written
    assert [step.label for step in read.rollouts[0].steps] == ["start", "näh \U0001f600"]


def test_the_final_anchor_survives_json_and_may_be_absent_from_it():
    written = RolloutGroup([Rollout([Step("s", "a")], False, final_anchor="m"), Rollout([Step("s", "a")], True)])
    data = json.loads(json.dumps(written.to_dict()))
    assert RolloutGroup.from_dict(data) == written
    for rollout_ in data["rollouts"]:
        del rollout_["final_anchor"]
    assert [played.final_anchor for played in RolloutGroup.from_dict(data).rollouts] == [None, None]


@pytest.mark.parametrize("final", ["", "<success>", "<failure>", 3])
def test_a_final_anchor_is_an_anchor(final):
    with pytest.raises(GroupError, match="the final anchor is an anchor's key or None"):
        Rollout([Step("s", "a")], False, final_anchor=final)


def test_reading_a_group_checks_it_again():
    data = group("s:a +", "s:b -").to_dict()
    data["rollouts"][1]["steps"][0][0] = "elsewhere"
    with pytest.raises(GroupError, match="rollout 1 starts at anchor elsewhere"):
        RolloutGroup.from_dict(data)


@pytest.mark.parametrize(
    ("success", "score", "recorded"),
    [(True, None, 1.0), (True, 0.0, 0.0), (True, 0.4, 0.4), (False, None, 0.0), (False, 0.0, 0.0), (False, 0.4, 0.4)],
)
def test_a_score_is_recorded_as_given_and_is_the_success_where_none_is(
    success: bool, score: float | None, recorded: float
) -> None:
    rollout = Rollout([Step("a", "go")], success, score=score)
    assert rollout.score == recorded and type(rollout.score) is float
    assert InternedRollouts.from_groups([RolloutGroup([rollout])]).score.tolist() == [recorded]
