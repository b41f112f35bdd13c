"""How episodes end, in every environment: what a group counts and keeps of successes, final failures and cuts."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from toy_env import CorridorEnv

from anchors import FAILURE, INVALID, SUCCESS, EmpiricalProcess, TransitionCounts
from crbc_envs import GroupVectorEnv
from crbc_envs.demonstrations import expert_steps
from crbc_rl import credit

PLAYED = ["CRBC-ALFWorld-v0", "CRBC-Sokoban-v0", "CRBC-WebShop-v0"]
SMALL = {"CRBC-ALFWorld-v0": {"rooms": "small"}}
"""Options that make an environment quick to play."""


class TrapdoorEnv(CorridorEnv):
    """The corridor with a trapdoor in its first cell: to step on it ends the episode, a failure for good."""

    def _ended(self):
        return self._success() or self.cell == 0


TRAPDOOR = "tests/Trapdoor-v0"
gymnasium.register(TRAPDOOR, entry_point=TrapdoorEnv)


def solution(env_id, **options):
    """A task, and replies that solve it."""
    env, twin = (gymnasium.make(env_id, disable_env_checker=True, **options).unwrapped for _ in range(2))
    task, replies = 0, []
    for _, info, reply in expert_steps(env, np.random.default_rng(0)):
        if info["step"] == 0:
            twin.reset(options={"task": task})
            if [twin.step(said)[-1]["success"] for said in replies][-1:] == [True]:
                return task, replies
            task, replies = int(info["task_id"].rpartition("/")[2]), []
        replies.append(reply)
    raise AssertionError


def wrong_purchase(task):
    """Replies that buy some other product than the one WebShop's task asks for."""
    env = gymnasium.make("CRBC-WebShop-v0", disable_env_checker=True).unwrapped
    env.reset(options={"task": task})
    other = next(p for p in map(env.shop.catalogue.__getitem__, range(9)) if p.asin != env.panel[task].content.asin)
    return [f"search[{other.title.lower()}]", f"click[{other.asin.lower()}]", "click[buy now]"]


def play(envs, scripts, **options):
    """Every member says its script's replies, then malformed ones, until all have ended; what members were told."""
    told = [[] for _ in scripts]
    envs.reset(seed=0, options=options)
    for t in range(1_000):
        live = envs.active
        if not live.any():
            return told
        replies = [script[t] if t < len(script) else "?" for script in scripts]
        _, rewards, terminated, truncated, info = envs.step(replies)
        for m in np.flatnonzero(live):
            kept = {name: info[name][m] for name in ("action", "anchor", "label", "success")}
            told[m].append({**kept, "reward": rewards[m], "terminated": terminated[m], "truncated": truncated[m]})
    raise AssertionError("it does not end")


def check(envs, told):
    """The group keeps exactly what its members were told, and its counts are those of its rollouts."""
    (group,), (counts,) = envs.groups(), envs.transition_counts()
    for rollout, steps in zip(group.rollouts, told, strict=True):
        assert [step.action for step in rollout.steps] == [step["action"] for step in steps]
        assert [step.reward for step in rollout.steps] == [step["reward"] for step in steps]
        assert [step.anchor for step in rollout.steps[1:]] == [step["anchor"] for step in steps[:-1]]
        assert [step.label for step in rollout.steps[1:]] == [step["label"] for step in steps[:-1]]
        last = steps[-1]
        assert rollout.final_anchor == last["anchor"]
        assert (rollout.success, rollout.truncated) == (last["success"], last["truncated"])
        assert last["terminated"] != last["truncated"]
    assert counts == TransitionCounts.from_rollouts(group.rollouts)
    won = sum(rollout.success for rollout in group.rollouts)
    ends = {end: sum(n for (_, _, x), n in counts.items() if x == end) for end in (SUCCESS, FAILURE)}
    assert ends == {SUCCESS: won, FAILURE: len(group) - won}
    at_one = credit.closure(EmpiricalProcess.from_interned(envs.interned()), beta=1.0)
    assert at_one.V[0] == pytest.approx(won / len(group), abs=1e-9)  # the start holds the share of successes
    return group


@pytest.mark.parametrize("env_id", PLAYED)
def test_a_group_keeps_a_success_as_a_success_and_a_cut_as_a_cut(env_id):
    options = SMALL.get(env_id, {})
    task, replies = solution(env_id, **options)
    envs = GroupVectorEnv(env_id, 1, 3, max_steps=len(replies), **options)
    group = check(envs, play(envs, [["?"], replies, replies[:1]], task=task))
    assert [(r.success, r.truncated) for r in group.rollouts] == [(False, True), (True, False), (False, True)]
    assert [len(rollout) for rollout in group.rollouts] == [len(replies)] * 3
    assert group.rollouts[0].invalid == len(replies)


def test_a_purchase_that_is_not_what_was_asked_for_is_kept_as_a_failure():
    task, replies = solution("CRBC-WebShop-v0")
    envs = GroupVectorEnv("CRBC-WebShop-v0", 1, 4)
    wrong = wrong_purchase(task)
    told = play(envs, [wrong, replies, wrong, []], task=task)
    group = check(envs, told)
    assert [r.success for r in group.rollouts] == [False, True, False, False]
    assert [r.truncated for r in group.rollouts] == [False, False, False, True]
    assert [steps[-1]["terminated"] for steps in told] == [True, True, True, False]
    assert [r.reward for r in group.rollouts] == [0.0, 10.0, 0.0, 0.0]


def test_a_group_of_final_failures_has_no_success_in_its_counts():
    envs = GroupVectorEnv("CRBC-WebShop-v0", 1, 2)
    group = check(envs, play(envs, [wrong_purchase(0)] * 2, task=0))
    assert group.success_rate == 0
    assert not any(rollout.truncated for rollout in group.rollouts)
    for values in credit.advantages(group):
        assert not values.any()


def test_success_final_failure_and_cut_are_told_apart_in_one_group():
    # Task 4 of the corridors starts at cell 1 with the key in cell 3.
    envs = GroupVectorEnv(TRAPDOOR, 1, 4, max_steps=10)
    won = ["right", "right", "take key", *["right"] * 5, "open door"]
    told = play(envs, [["left"], won, ["right", "left", "left"], ["right", "right"]], task=4)
    group = check(envs, told)
    assert [r.success for r in group.rollouts] == [False, True, False, False]
    assert [r.truncated for r in group.rollouts] == [False, False, False, True]
    assert [len(r) for r in group.rollouts] == [1, 9, 3, 10]
    assert [r.invalid for r in group.rollouts] == [0, 0, 0, 8]


def test_an_end_on_the_last_step_there_is_cuts_nothing():
    envs = GroupVectorEnv(TRAPDOOR, 1, 2, max_steps=9)
    won = ["right", "right", "take key", *["right"] * 5, "open door"]
    lost = [*["right"] * 4, *["left"] * 5]
    group = check(envs, play(envs, [won, lost], task=4))
    assert [(r.success, r.truncated) for r in group.rollouts] == [(True, False), (False, False)]


def test_a_terminated_failure_is_over_for_the_environment_too():
    env = gymnasium.make(TRAPDOOR, disable_env_checker=True).unwrapped
    env.reset(options={"task": 4})
    *_, terminated, truncated, info = env.step("left")
    assert (terminated, truncated, info["success"], info["score"]) == (True, False, False, 0.0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("right")


class Graded(CorridorEnv):
    """Grades its outcome by an int or a float, as it comes."""

    def _score(self):
        return 1 if self.open else self.cell / 10


def test_a_score_is_a_float_however_it_is_computed():
    env = Graded()
    env.reset(options={"task": 4})  # cell 1, the key in cell 3
    scores = [env.step(move)[4]["score"] for move in ["right", "right", "take key", *["right"] * 5, "open door"]]
    assert scores == [0.2, 0.3, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0]
    assert set(map(type, scores)) == {float}


def test_a_task_is_a_whole_number():
    env = CorridorEnv()
    assert env.reset(options={"task": np.int64(3)})[1]["task_id"] == "corridor/train/3"
    with pytest.raises(TypeError, match="float"):
        env.reset(options={"task": 3.9})


# ---- limits ---------------------------------------------------------------------------------------


LIMITED = "tests/Limited-v0"
gymnasium.register(LIMITED, entry_point=CorridorEnv, max_episode_steps=5)


def lengths(envs, size):
    """How many malformed replies each member lives through."""
    envs.reset(seed=0)
    while envs.active.any():
        envs.step(["?"] * size)
    (group,) = envs.groups()
    assert all(rollout.truncated for rollout in group.rollouts)
    assert {step.action for rollout in group.rollouts for step in rollout.steps} == {INVALID}
    return [len(rollout) for rollout in group.rollouts]


@pytest.mark.parametrize("env_id", [*PLAYED, "Corridor-v0"])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_shorter_limit_asked_for_binds_every_member(env_id, limit):
    assert lengths(GroupVectorEnv(env_id, 1, 2, max_steps=limit, **SMALL.get(env_id, {})), 2) == [limit] * 2


@pytest.mark.parametrize("env_id", PLAYED)
def test_a_shorter_limit_reaches_the_members_through_make_vec(env_id):
    small = SMALL.get(env_id, {})
    for limit in ({"max_steps": 3}, {"max_episode_steps": 3}):
        assert lengths(gymnasium.make_vec(env_id, num_envs=2, **limit, **small).unwrapped, 2) == [3, 3]


@pytest.mark.parametrize("env_id", PLAYED)
def test_a_shorter_limit_cuts_a_single_environment(env_id):
    env = gymnasium.make(env_id, max_steps=3, disable_env_checker=True, **SMALL.get(env_id, {}))
    env.reset(seed=0)
    assert [env.step("?")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(("asked", "found"), [({}, 5), ({"max_steps": 3}, 3), ({"max_steps": 9}, 5)])
def test_of_a_registered_limit_and_one_asked_for_the_shorter_binds(asked, found):
    assert lengths(GroupVectorEnv(LIMITED, 1, 2, **asked), 2) == [found] * 2
