"""What rollouts and evaluations ask a policy: with which dice, at which temperature, about which tasks, and what of
its past it is shown."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from door_env import Asked, Clerk, door_config, worker_of

from anchors import INVALID
from crbc_envs import GroupVectorEnv
from crbc_envs.actions import tagged
from crbc_envs.prompts import HISTORY_LENGTH, Prompt, PromptWindow
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.tasks import rng, stream
from crbc_rl.batches import RolloutBatch
from crbc_rl.rollout import evaluate as evaluation
from crbc_rl.rollout.collect import collect, open_groups
from crbc_rl.rollout.evaluate import evaluate, play_panel


def _played(
    clerk: Clerk, tasks: list[int], seeds: list[int], size: int = 4, waves: int = 1, steps: int = 5
) -> RolloutBatch:
    envs = GroupVectorEnv("Door-v0", len(tasks), size, max_steps=steps, replies="tags")
    return collect(envs, clerk, tasks, seeds, prompt="all", temperature=0.9, max_new_tokens=7, waves=waves)


def _dice(clerk: Clerk) -> list[int]:
    return [asked.seed for asked in clerk.asked]


# ---- the dice -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("waves", [1, 2])
def test_every_reply_has_dice_of_its_own_over_groups_members_and_steps(waves: int) -> None:
    clerk = Clerk()
    _played(clerk, [5, 5, 5], [11, 12, 13], waves=waves)
    assert len(clerk.asked) == 3 * 4 * 5
    assert len(set(_dice(clerk))) == 3 * 4 * 5


def test_a_group_has_the_same_dice_wherever_it_is_played() -> None:
    beside, alone = Clerk(), Clerk()
    _played(beside, [7, 8, 9, 4, 5], [1, 2, 3, 4, 6], size=2)
    _played(alone, [9], [3], size=2)
    mine = [asked for asked in beside.asked if "door 27." in asked.text]
    assert [(asked.text, asked.seed) for asked in mine] == [(asked.text, asked.seed) for asked in alone.asked]


def test_a_member_has_the_same_dice_however_many_play_beside_it() -> None:
    few, many = Clerk(), Clerk()
    _played(few, [1], [3], size=2, steps=1)
    _played(many, [1], [3], size=6, steps=1)
    assert _dice(many)[:2] == _dice(few)


def test_a_task_has_other_dice_under_another_seed() -> None:
    one, other, again = Clerk(), Clerk(), Clerk()
    for clerk, seed in ((one, 1), (other, 2), (again, 1)):
        _played(clerk, [5], [seed])
    assert _dice(one) == _dice(again)
    assert not set(_dice(one)) & set(_dice(other))


def test_streams_differ_by_their_name_and_by_every_number_of_their_path() -> None:
    """A name always has a path of one length."""
    paths = [(name, i, j) for name in ("a", "b", "ab") for i in (0, 1, 2**31 - 1) for j in range(50)]
    assert len({stream(*path) for path in paths}) == len(paths)
    assert all(0 <= stream("seed", n) < 2**31 for n in range(200))
    assert rng("a", 1).random() == rng("a", 1).random() != rng("a", 2).random()


def test_no_dice_task_or_ticket_comes_again_in_another_update_attempt_or_run() -> None:
    """Nobody ever wins, so every attempt is made."""
    clerks = []
    for seed in (0, 1):
        clerk = Clerk()
        clerks.append(clerk)
        worker = worker_of(clerk, door_config(seed=seed, rollout={"rounds": 2}))
        for update in (1, 2):
            worker.sample(update)
    asked = [one for clerk in clerks for one in clerk.asked]
    plays = 2 * 2 * 2 * 3  # runs, updates, attempts, groups
    assert len({one.seed for one in asked}) == len(asked) == plays * 4 * 3
    assert len({one.door for one in asked}) == plays  # of 100,000: none is drawn twice
    assert len({one.ticket for one in asked}) == plays  # the environments' own draws, alike within a group


def test_an_update_that_is_played_again_is_the_same() -> None:
    clerk = Clerk()
    worker = worker_of(clerk, door_config())
    first, other, again = (worker.sample(update).rollouts.groups() for update in (4, 5, 4))
    assert first == again != other
    n = len(clerk.asked) // 3
    assert _dice(clerk)[:n] == _dice(clerk)[2 * n :] != _dice(clerk)[n : 2 * n]


# ---- temperature and limits ---------------------------------------------------------------------------


def test_training_samples_at_its_temperature_and_evaluation_at_its_own() -> None:
    clerk, config = Clerk(), door_config(eval={"temperature": 0.3})
    worker = worker_of(clerk, config)
    worker.sample(1)
    assert {(asked.temperature, asked.max_new_tokens) for asked in clerk.asked} == {(0.9, 7)}
    for judge in (lambda: worker.evaluate("validation", 2), lambda: evaluate(clerk, config, "test", 2, seed=0)):
        clerk.asked.clear()
        judge()
        assert {(asked.temperature, asked.max_new_tokens) for asked in clerk.asked} == {(0.3, 7)}


@pytest.mark.parametrize(("given", "played"), [({"max_steps": 2}, 2), ({"max_steps": 5}, 5), ({}, 9)])
def test_episodes_are_as_long_as_the_config_says_in_training_and_evaluation(given: dict, played: int) -> None:
    config = door_config(env={"kwargs": given})
    worker = worker_of(Clerk(), config)
    groups = worker.sample(1).rollouts.groups()
    assert {len(rollout) for group in groups for rollout in group.rollouts} == {played}
    assert all(rollout.truncated for group in groups for rollout in group.rollouts)
    assert worker.evaluate("test", 2).length == played


@pytest.mark.parametrize(("registered", "asked", "played"), [(4, 2, 2), (4, 6, 4)])
def test_of_two_limits_to_an_episode_the_shorter_holds(registered: int, asked: int, played: int) -> None:
    gymnasium.register("DoorLimited-v0", entry_point="door_env:DoorEnv", max_episode_steps=registered)
    try:
        config = door_config(env={"id": "DoorLimited-v0", "kwargs": {"max_steps": asked}})
        assert worker_of(Clerk(), config).evaluate("test", 2).length == played
    finally:
        gymnasium.registry.pop("DoorLimited-v0")


def test_what_is_played_is_the_split_that_was_asked_for_and_replies_need_their_tags() -> None:
    for split in ("train", "validation", "test"):
        envs = open_groups(door_config(), split, 2, 3)
        assert envs.panel.split == split and (envs.num_groups, envs.group_size) == (2, 3)
    sample = worker_of(Clerk(lambda asked: "open"), door_config()).sample(1)
    assert {step.action for group in sample.rollouts.groups() for r in group.rollouts for step in r.steps} == {INVALID}
    assert all(group.task.startswith("door/train/") for group in sample.rollouts.groups())


# ---- evaluation ---------------------------------------------------------------------------------------


def test_an_evaluation_s_dice_are_of_its_seed_and_of_each_task() -> None:
    config = door_config()
    clerks = [Clerk() for _ in range(3)]
    for clerk, seed in zip(clerks, (0, 0, 1), strict=True):
        evaluate(clerk, config, "test", 4, seed)
    first, again, other = map(_dice, clerks)
    assert first == again
    assert len(set(first)) == len(first) == 4 * 3
    assert not set(first) & set(other)
    assert len({asked.ticket for asked in clerks[0].asked}) == 4, "environments draw by task, too"


def test_the_seed_of_the_run_is_that_of_its_evaluations() -> None:
    clerks = [Clerk() for _ in range(3)]
    for clerk, seed in zip(clerks, (0, 0, 1), strict=True):
        worker_of(clerk, door_config(seed=seed)).evaluate("validation", 3)
    assert _dice(clerks[0]) == _dice(clerks[1])
    assert not set(_dice(clerks[0])) & set(_dice(clerks[2]))


def test_a_task_is_played_alike_whatever_is_evaluated_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(clerk: Clerk) -> set[tuple[str, int]]:
        return {(asked.text, asked.seed) for asked in clerk.asked}

    whole, parts, some, done = Clerk(), Clerk(), Clerk(), []

    def panel(*arguments: Any) -> dict[int, tuple[Any, ...]]:
        """The figures of each task."""
        columns = play_panel(*arguments)
        names = ("task", "success", "score", "reward", "length", "invalid", "kind")
        figures = zip(*(columns[name].tolist() for name in names), strict=True)
        return {task: rest for task, *rest in figures}

    played = panel(whole, door_config(), "test", range(7), 3)
    monkeypatch.setattr(evaluation, "BATCH", 3)
    assert panel(parts, door_config(), "test", range(7), 3, done.append) == played
    assert told(parts) == told(whole)
    assert done == sorted(done) and {3, 6, 7} <= set(done) and done[-1] == 7
    assert list(played) == list(range(7))
    assert panel(some, door_config(), "test", [5, 2], 3) == {task: played[task] for task in (5, 2)}
    assert told(some) < told(whole)


def test_an_evaluation_plays_the_first_tasks_of_its_split_once_each() -> None:
    clerk = Clerk(lambda asked: tagged("open"))
    told = evaluate(clerk, door_config(), "validation", 5, seed=0)
    assert sorted(asked.door for asked in clerk.asked) == [1, 4, 7, 10, 13]
    assert (told.split, told.episodes, told.successes, told.length) == ("validation", 5, 5, 1.0)


def test_the_figures_of_an_evaluation_are_those_of_a_hand_count() -> None:
    """Door 2 opens at once; door 5 after a knock; door 8 never, after a knock and two words nobody knows."""

    def say(asked: Asked) -> str:
        said = {2: ["open"], 5: ["knock", "open"], 8: ["knock", "ring", "ring"]}
        return tagged(said[asked.door][asked.step])

    told = evaluate(Clerk(say), door_config(), "test", 3, seed=0)
    assert told.successes == 2 and told.success == pytest.approx(2 / 3)
    assert told.reward == pytest.approx((1.0 + 0.75 - 1.25) / 3)
    assert told.length == pytest.approx((1 + 2 + 3) / 3)
    assert told.reward_by_step == pytest.approx((1 * 1.0 + 2 * 0.75 + 3 * -1.25) / 6)
    assert told.invalid_share == pytest.approx(2 / 6)
    assert told.truncated_share == pytest.approx(1 / 3)  # door 8
    # p = 2/3, n = 3, z = 1.96: (p + 0.64027 -+ 1.96 sqrt(0.074074 + 0.106711)) / 2.28053
    assert told.interval == pytest.approx((0.207657, 0.938510), abs=1e-5)


# ---- what is shown of the past ------------------------------------------------------------------------


def test_the_past_holds_the_action_that_was_executed_and_what_it_was_taken_at() -> None:
    replies = [tagged("  KNOCK "), "open, please", tagged("kick"), tagged("knock"), tagged("open")]
    clerk = Clerk(lambda asked: replies[asked.step])
    sample = _played(clerk, [0], [1], size=1)
    shown = [asked.text.split("|")[-1].replace(f", ticket {asked.ticket}", "") for asked in clerk.asked]
    assert shown == [
        "",
        "[knocks 0 -> knock]",
        f"[knocks 0 -> knock][knocks 1 -> {INVALID}]",
        f"[knocks 1 -> {INVALID}][knocks 1 -> {INVALID}]",
        f"[knocks 1 -> {INVALID}][knocks 1 -> knock]",
    ]
    assert [asked.text.split("|")[2].split(",")[0] for asked in clerk.asked] == [f"knocks {n}" for n in (0, 1, 1, 1, 2)]
    assert [asked.step for asked in clerk.asked] == [0, 1, 2, 3, 4]
    assert [turn.text for turn in sample.turns] == replies
    assert HISTORY_LENGTH == 2


def test_members_that_end_apart_keep_their_own_past() -> None:
    """The second of three members opens at once; the others go on, and nobody is shown another's record."""
    seeds: list[int] = []

    def say(asked: Asked) -> str:
        seeds.append(asked.seed)
        return tagged(["knock", "open", "kick", "kick", "knock"][len(seeds) - 1] if len(seeds) < 6 else "open")

    clerk = Clerk(say)
    sample = _played(clerk, [0], [1], size=3)
    assert [[step.action for step in rollout.steps] for rollout in sample.rollouts.groups()[0].rollouts] == [
        ["knock", INVALID, "open"],
        ["open"],
        [INVALID, "knock", "open"],
    ]
    last = [asked.text.split("|")[-1] for asked in clerk.asked[-2:]]
    ticket = clerk.asked[0].ticket
    assert last == [
        f"[knocks 0, ticket {ticket} -> knock][knocks 1, ticket {ticket} -> {INVALID}]",
        f"[knocks 0, ticket {ticket} -> {INVALID}][knocks 0, ticket {ticket} -> knock]",
    ]


def test_a_new_episode_begins_without_a_past() -> None:
    clerk = Clerk()
    worker = worker_of(clerk, door_config())
    worker.sample(1)
    worker.sample(2)
    assert {asked.text.split("|")[-1] for asked in clerk.asked if asked.step == 0} == {""}


def test_a_frame_is_shown_where_the_template_has_a_place_and_never_remembered() -> None:
    frame = np.zeros((2, 2, 3), np.uint8)
    info = {"task": "t", "admissible_actions": ("up",), "step": 0}
    asked = PromptWindow.of(SokobanEnv, "image").ask(frame, info)
    assert len(asked.images) == 1 and asked.images[0] is frame
    text = PromptWindow.of(SokobanEnv, "compact")
    assert text.ask(frame, info) == Prompt("Sokoban\n\nYour move?")
    text.record(frame, "up")
    assert list(text.history) == [("", "up")]
    assert PromptWindow.of(SokobanEnv, "image").ask("a board", info).images == ()
