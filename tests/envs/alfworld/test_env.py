"""CRBC-ALFWorld-v0: what an agent sees, its anchors and rewards, its prompts, and groups of it."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from alfworld_games import TASK, Games, kitchen

import crbc_envs
from anchors import INVALID, anchor_key
from anchors.key import ANCHOR_KINDS
from crbc_envs import GroupVectorEnv
from crbc_envs.alfworld.engine.backends import shared_parse
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.errors import DataError
from crbc_envs.prompts import PromptWindow

TAKE = ("go to countertop 1", "take apple 2 from countertop 1")


def in_kitchen(*commands, file=None, **options):
    """An environment in the kitchen, and what its last reset or step has returned."""
    env = AlfworldEnv(**options)
    env.panel = Games(file or kitchen())
    answer = env.reset(seed=0)
    for command in commands:
        answer = env.step(command)
    return env, answer


def seen(*commands, **options):
    return in_kitchen(*commands, **options)[1][0]


def info(*commands, **options):
    return in_kitchen(*commands, **options)[1][-1]


def anchor(*commands, **options):
    return info(*commands, **options)["anchor"]


# ---- what is seen ---------------------------------------------------------------------------------


def test_an_observation_is_the_games_text_and_four_lines():
    assert seen(*TAKE, "clean apple 2 with sinkbasin 1") == (
        "You clean the apple 2 using the sinkbasin 1.\n"
        "Location: countertop 1, sinkbasin 1\n"
        "Holding: apple 2 (clean)\n"
        "Item history: take apple 2 from countertop 1; clean apple 2 with sinkbasin 1\n"
        "Admissible commands: clean apple 2 with sinkbasin 1, examine apple 2, examine countertop 1, "
        "examine sinkbasin 1, go to cabinet 1, go to drawer 1, go to fridge 1, go to microwave 1, help, inventory, "
        "look, move apple 2 to countertop 1, move apple 2 to sinkbasin 1, use desklamp 1"
    )


def test_an_episode_begins_in_the_middle_of_the_room():
    text = seen()
    assert text.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
    assert f"Your task is to: {TASK}\nLocation: middle of the room\nHolding: nothing\nItem history: none\n" in text


@pytest.mark.parametrize(
    ("commands", "line"),
    [
        (["go to microwave 1", "heat apple 2 with microwave 1"], "Holding: apple 2 (hot)"),
        (["go to microwave 1", "heat apple 2 with microwave 1", "go to fridge 1", "cool apple 2 with fridge 1"],
         "Holding: apple 2 (cool)"),
        (["clean apple 2 with sinkbasin 1", "go to microwave 1", "heat apple 2 with microwave 1"],
         "Holding: apple 2 (clean, hot)"),
        (["move apple 2 to countertop 1"], "Holding: nothing"),
        (["use desklamp 1"], "Item history: take apple 2 from countertop 1; use desklamp 1"),
        (["go to drawer 1", "open drawer 1"], "Item history: take apple 2 from countertop 1"),
        (["go to drawer 1", "open drawer 1"], "Location: cabinet 1, drawer 1"),
    ],
)  # fmt: skip
def test_the_lines_tell_what_was_done(commands, line):
    assert line in seen(*TAKE, *commands).split("\n")


def test_an_item_keeps_its_status_out_of_the_hand():
    back = ("clean apple 2 with sinkbasin 1", "move apple 2 to countertop 1", "take egg 1 from countertop 1")
    assert "Holding: egg 1\n" in seen(*TAKE, *back)
    again = ("move egg 1 to countertop 1", "take apple 2 from countertop 1")
    assert "Holding: apple 2 (clean)\n" in seen(*TAKE, *back, *again)


def test_the_older_generation_is_seen_in_its_own_words():
    text = seen(*TAKE, "put apple 2 in/on sinkbasin 1", file=kitchen(verb="put"))
    assert text.startswith("You put the apple 2 in/on the sinkbasin 1.\n")
    assert "Holding: nothing\nItem history: take apple 2 from countertop 1; put apple 2 in/on sinkbasin 1\n" in text


def test_the_ansi_frame_is_the_observation():
    env, (text, _) = in_kitchen(render_mode="ansi")
    assert env.render() == text
    assert in_kitchen()[0].render() is None


# ---- anchors --------------------------------------------------------------------------------------


def test_the_anchor_is_the_key_of_exactly_what_is_seen():
    assert anchor(*TAKE) == anchor_key(seen(*TAKE))
    assert info(*TAKE)["label"] == seen(*TAKE)


def test_a_place_has_one_anchor_whichever_of_its_receptacles_was_walked_to():
    assert anchor("go to countertop 1", "look") == anchor("go to sinkbasin 1", "look")
    assert anchor("go to drawer 1", "look") != anchor("go to sinkbasin 1", "look")


def test_what_was_done_to_items_is_in_the_anchor():
    there_and_back = (*TAKE, "move apple 2 to countertop 1")
    assert anchor("go to countertop 1", "examine countertop 1") != anchor(*there_and_back, "examine countertop 1")


@pytest.mark.parametrize("reply", ["fly", "", "<think>x</think>", "take apple 2 from countertop 1", "go to nowhere"])
def test_a_reply_that_is_not_admissible_leaves_the_anchor(reply):
    _, (text, reward, terminated, _, told) = in_kitchen("go to drawer 1", reply)
    before = info("go to drawer 1")
    assert (told["action"], told["valid"], told["effect"], reward, terminated) == (INVALID, False, False, 0.0, False)
    assert [told[key] for key in ("anchor", "label")] == [before[key] for key in ("anchor", "label")]
    assert text == "Nothing happens." + before["label"][before["label"].index("\nLocation") :]


def test_commands_that_only_tell_cost_a_step_and_are_anchors_of_their_own():
    told = [info("go to drawer 1", command) for command in ("help", "inventory", "look", "examine drawer 1")]
    assert all(each["valid"] and each["effect"] and each["step"] == 2 for each in told)
    assert len({each["anchor"] for each in told}) == 4
    assert all("\nLocation: cabinet 1, drawer 1\n" in each["label"] for each in told)


def test_with_observation_anchors_every_nothing_happens_is_one():
    told = [info(*commands, anchor="observation") for commands in (["fly"], ["go to drawer 1", "fly"], [*TAKE, "fly"])]
    assert {each["anchor"] for each in told} == {anchor_key("Nothing happens.")}
    assert info(*TAKE, anchor="observation")["label"] == "You pick up the apple 2 from the countertop 1."


@pytest.mark.parametrize("reply", ["fly", "", "<think>x</think>", "go to nowhere"])
def test_with_paper_anchors_every_answer_is_keyed_as_it_is_seen(reply):
    _, (text, *_, told) = in_kitchen("go to drawer 1", reply, anchor="paper")
    assert (told["label"], told["anchor"]) == (text, anchor_key(text))
    assert text.startswith("Nothing happens.\nLocation: cabinet 1, drawer 1\n")
    again = info("go to drawer 1", reply, reply, anchor="paper")
    elsewhere = info("go to fridge 1", reply, anchor="paper")
    assert told["anchor"] == again["anchor"] != elsewhere["anchor"]
    assert anchor("go to drawer 1", anchor="paper") == anchor("go to drawer 1", anchor="situation") != told["anchor"]


def test_with_state_anchors_the_state_decides_and_no_text_or_order_does():
    def key(*commands):
        return anchor(*commands, anchor="state")

    here = key("go to drawer 1")
    assert {key("go to drawer 1", command) for command in ("look", "help", "inventory", "fly")} == {here}
    assert key("go to drawer 1", "open drawer 1") != here
    assert key("go to drawer 1", "open drawer 1", "close drawer 1") == here
    assert key("go to countertop 1") == key("go to sinkbasin 1")  # one place
    there_and_back = (*TAKE, "move apple 2 to countertop 1")
    assert key(*there_and_back) == key("go to countertop 1")
    assert anchor(*there_and_back) != anchor("go to countertop 1")
    apple, egg = there_and_back[1:], ("take egg 1 from countertop 1", "move egg 1 to countertop 1")
    clean = ("clean apple 2 with sinkbasin 1",)
    orders = [(*apple[:1], *clean, *apple[1:], *egg), (*egg, *apple[:1], *clean, *apple[1:])]
    assert len({key("go to countertop 1", *order) for order in orders}) == 1
    assert len({anchor("go to countertop 1", *order) for order in orders}) == 2


def test_a_door_behind_the_agent_is_in_the_state_alone():
    opened = ("go to drawer 1", "open drawer 1", "go to fridge 1", "look")
    shut = ("go to drawer 1", "go to fridge 1", "look")
    assert [anchor(*opened, anchor=kind) == anchor(*shut, anchor=kind) for kind in ANCHOR_KINDS] == [
        True, True, True, False,
    ]  # fmt: skip


def test_two_states_have_two_descriptions_and_a_state_has_one():
    env, (_, told) = in_kitchen(anchor="state")
    rng, seen = np.random.default_rng(0), {}
    for _ in range(40):
        _, told = env.reset(options={"task": 0})
        for _ in range(30):
            assert seen.setdefault(env.backend.state, told["label"]) == told["label"]
            *_, terminated, _, told = env.step(str(rng.choice(told["admissible_actions"])))
            if terminated:
                break
    assert len(seen) > 100
    assert len(set(seen.values())) == len(seen)


def test_every_kind_can_be_asked_for_beside_the_chosen_one():
    for chosen in ANCHOR_KINDS:
        env, (*_, told) = in_kitchen(*TAKE, "fly", anchor=chosen)
        assert env.anchor_as(chosen) == told["anchor"]
        assert {kind: env.anchor_as(kind) for kind in ANCHOR_KINDS} == {
            kind: anchor(*TAKE, "fly", anchor=kind) for kind in ANCHOR_KINDS
        }
    with pytest.raises(ValueError, match="anchor must be one of"):
        env.anchor_as("page")


def test_the_name_tells_kind_and_version():
    names = [AlfworldEnv(anchor=kind).anchor_name for kind in ANCHOR_KINDS]
    assert names == ["paper-2", "situation-1", "observation-1", "state-1"]
    assert AlfworldEnv().anchor_name == "situation-1"


def test_the_distance_is_that_of_a_plan_and_infinite_without_one():
    file = kitchen()
    env, _ = in_kitchen(file=file)
    assert env.distance() == len(file.walkthrough)
    for left, command in zip(reversed(range(len(file.walkthrough))), file.walkthrough, strict=True):
        env.step(command)
        assert env.distance() == left


# ---- episodes -------------------------------------------------------------------------------------


def test_success_earns_ten_and_ends_the_episode():
    file = kitchen()
    env, (*_, told) = in_kitchen(*file.walkthrough[:-1])
    assert not told["success"]
    _, reward, terminated, truncated, told = env.step(file.walkthrough[-1])
    assert (reward, terminated, truncated, told["success"], told["score"]) == (10.0, True, False, True, 1.0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_fifty_steps_without_success_truncate_it():
    env, (*_, told) = in_kitchen(*["look"] * 49)
    assert told["step"] == 49
    *_, reward, terminated, truncated, told = env.step("look")
    assert (reward, terminated, truncated, told["success"], told["score"]) == (0.0, False, True, False, 0.0)


def test_info_has_the_family_and_the_task():
    told = info()
    assert (told["family"], told["task"], told["effect"], told["data"]) == ("heat", TASK, False, "generated")


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"engine": "unity"}, ValueError, "engine must be one of exact, textworld; got 'unity'"),
        ({"data": "mine"}, ValueError, "data must be one of generated, official; got 'mine'"),
        ({"anchor": "page"}, ValueError, "anchor must be one of paper, situation, observation, state; got 'page'"),
        ({"split": "dev"}, ValueError, "split must be one of"),
        ({"render_mode": "human"}, ValueError, "render_mode must be one of"),
        ({"data": "official", "data_dir": "/nowhere"}, DataError, "/nowhere/train: no such folder; .*crbc data"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_refused(options, error, why):
    with pytest.raises(error, match=why):
        AlfworldEnv(**options)


# ---- groups ---------------------------------------------------------------------------------------


def test_copies_of_a_group_share_one_game_and_its_memo():
    shared_parse.cache_clear()  # another test may have played it
    envs = GroupVectorEnv("CRBC-ALFWorld-v0", num_groups=2, group_size=3)
    _, infos = envs.reset(seed=0)
    envs.step([actions[0] for actions in infos["admissible_actions"]])
    games = [member.backend.game for member in envs.members.envs]
    assert games[0] is games[1] is games[2]
    assert games[3] is games[4] is games[5]
    assert games[0] is not games[3]
    assert len(games[0].situations) == 2


@pytest.mark.usefixtures("one_hash_seed")
@pytest.mark.parametrize("kind", ANCHOR_KINDS)
def test_the_checker_is_content_with_every_kind_of_anchor(kind):
    env = gymnasium.make("CRBC-ALFWorld-v0", rooms="small", anchor=kind)
    report = crbc_envs.check_anchor_env(env, fuzz=50, episodes=8, split_tasks=1)
    assert (report.aliasing == 0) == (kind in ("paper", "situation"))


# ---- prompts --------------------------------------------------------------------------------------


def prompt(style, *commands):
    """The prompt after some commands."""
    env, (text, told) = in_kitchen()
    window = PromptWindow.of(AlfworldEnv, style)
    for command in commands:
        window.record(text, command)
        text, *_, told = env.step(command)
    return window.prompt(text, told)


def test_the_papers_prompt_has_two_records_and_names_everything_once():
    text = prompt("text", *TAKE, "go to drawer 1")
    assert text == (
        "You are an expert agent operating in the ALFRED embodied environment. "
        "Your task is to: heat some apple and put it in drawer.\n"
        "Prior to this step, you have already taken 3 step(s). Below are the most recent 2 observations and the "
        "corresponding actions you took:\n"
        "[Observation 2: 'You arrive at countertop 1. On the countertop 1, you see a apple 2, a bowl 1, a bread 1, "
        "a desklamp 1, and a egg 1.', Action 2: 'take apple 2 from countertop 1']\n"
        "[Observation 3: 'You pick up the apple 2 from the countertop 1.', Action 3: 'go to drawer 1']\n"
        "You are now at step 4 and your current observation is: You arrive at drawer 1. The drawer 1 is closed.\n"
        "Location: cabinet 1, drawer 1\n"
        "Holding: apple 2\n"
        "Item history: take apple 2 from countertop 1\n"
        "Your admissible actions for the current situation are: ['examine apple 2',\n'examine cabinet 1',\n"
        "'examine drawer 1',\n'go to countertop 1',\n'go to fridge 1',\n'go to microwave 1',\n'go to sinkbasin 1',\n"
        "'inventory',\n'look',\n'open cabinet 1',\n'open drawer 1'].\n\n"
        "Now it is your turn to take an action. First reason step by step about the current situation. This reasoning "
        "process MUST be enclosed within <think>...</think>. Once you have finished your reasoning, choose an "
        "admissible action for the current step and present it within <action>...</action>."
    )


def test_the_first_prompt_tells_of_no_earlier_steps():
    text = prompt("text")
    assert "Prior to this step" not in text
    assert "You are now at step 1 and your current observation is: -= Welcome to TextWorld" in text


def test_the_compact_prompt_says_everything_once():
    assert prompt("compact", "go to countertop 1") == (
        "Task: heat some apple and put it in drawer.\n"
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, a bowl 1, a bread 1, a desklamp 1, "
        "and a egg 1.\n"
        "At: countertop 1, sinkbasin 1\n"
        "Holding: nothing\n"
        "go to cabinet 1\n"
        "go to drawer 1\n"
        "go to fridge 1\n"
        "go to microwave 1\n"
        "take apple 2 from countertop 1\n"
        "take bowl 1 from countertop 1\n"
        "take bread 1 from countertop 1\n"
        "take bread 1 from sinkbasin 1\n"
        "take egg 1 from countertop 1\n"
        "use desklamp 1\n"
        "Your action?"
    )


def test_the_compact_prompt_remembers_where_its_records_went_and_what_was_done():
    lines = prompt("compact", "go to fridge 1", *TAKE, "go to drawer 1").split("\n")
    assert lines[1] == "Done: take apple 2 from countertop 1"
    assert "Been there:" not in lines  # of two records, the one place it went to is the one it is at
    env, (text, told) = in_kitchen()
    window = PromptWindow.of(AlfworldEnv, "compact", history=9)
    first = window.prompt(text, told)
    assert "Been" not in first and "Done" not in first
    for command in ("go to fridge 1", "go to drawer 1", "nonsense", "go to countertop 1"):
        seen = text
        text, *_, told = env.step(command)
        window.record(seen, told["action"])
    lines = window.prompt(text, told).split("\n")
    assert lines[-4:] == ["Been there:", "go to drawer 1", "go to fridge 1", "Your action?"]
    assert lines.count("go to drawer 1") == 1


def test_a_command_the_game_answers_with_nothing_has_no_effect(monkeypatch):
    env = gymnasium.make("CRBC-ALFWorld-v0", rooms="small", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    assert env.step("look")[-1]["effect"]
    monkeypatch.setattr(env.backend, "step", lambda command: setattr(env.backend, "feedback", "Nothing happens."))
    info = env.step("look")[-1]
    assert (info["valid"], info["effect"]) == (True, False)
