"""Prompts and memory are held to the published formats, word by word, by a scripted model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_envs  # noqa: F401  registers SplitCountdown-v0
import gymnasium
import numpy as np
import pytest
import toy_env
from scripted_model import ScriptedPolicy, agents_config, play

from crbc_envs.actions import CUT_ACTION, CUT_THOUGHT
from crbc_envs.storage.rollouts import read_recording
from crbc_envs.tasks import Task
from crbc_lab.agents.ledger import Answer
from crbc_lab.agents.react import _cut
from crbc_lab.agents.reflexion import memory_text, plan_of, reflection_prompt
from crbc_lab.agents.run import Run, first_prompt
from crbc_lab.agents.transcript import BRACKET, LINE, Head, transcript_prompt
from crbc_rl.rollout.panel import choose

HOUSE = {"id": "CRBC-ALFWorld-v0", "kwargs": {"rooms": "small", "max_steps": 6}}
SHOP = {"id": "CRBC-WebShop-v0", "kwargs": {"max_steps": 6}}


def asked(folder: Path, agent: str, replies: list[str], **changes: Any) -> tuple[list[str], dict[str, Any]]:
    """The prompts of one episode, and its result."""
    settings = {"episodes": 1, "react": {"examples": 0}, **changes}
    config = agents_config(folder, agent, **settings)
    policy = ScriptedPolicy([*replies, *["nonsense"] * 100])
    return policy.asked, play(config, folder / "run", policy)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("<think>x</think><action>go to cabinet 1</action> then I will", ""),
        ("<think>x</think><action>go to cabinet 1", CUT_ACTION),
        ("<think>I look for", CUT_THOUGHT),
        ("> look\nthen I", CUT_THOUGHT),
    ],
)
def test_of_a_reply_that_reached_its_limit_an_action_with_both_tags_counts(text: str, cause: str) -> None:
    assert _cut(Answer(text, finish_reason="length")) == cause
    assert _cut(Answer(text, finish_reason="stop")) == (cause if cause == CUT_THOUGHT and "<think>" in text else "")


# ---- lines: ALFWorld --------------------------------------------------------------------------------


def test_a_household_transcript_is_as_published(tmp_path: Path) -> None:
    replies = ["think: First I look around.", "> look", "fly\nto the moon", "think: Hm."]
    prompts, told = asked(tmp_path, "react", replies, env=HOUSE)
    head, _, opening = prompts[0].partition("\n\nHere is the task.\n")
    assert head == (
        'Solve a task by interacting with its environment. Reply with one line: a thought, "think: ...", or an action.'
    )
    assert opening.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert "\n\nYour task is to: " in opening and opening.endswith(".\n>")
    assert "Admissible" not in opening and "Location" not in opening, "the game's text alone"
    assert prompts[1] == f"{prompts[0]} think: First I look around.\nOK.\n>"
    assert prompts[2].startswith(f"{prompts[1]} look\nYou are in the middle of a room.")
    assert prompts[3] == f"{prompts[2]} fly\nNothing happens.\n>"
    assert prompts[4] == f"{prompts[3]} think: Hm.\nOK.\n>"
    assert len(prompts) == 6, "a thought counts as a turn, and there are as many turns as steps"
    assert told["endings"] == {"turns": 1} and told["thoughts"] == 2 and told["steps"] == 4


class Listed(toy_env.Corridors):
    """Tasks in the order of their names: all near ones first, and the examples of far ones beyond the first 200."""

    listed = True

    def _task(self, index: int) -> Task[Any]:
        return replace(super()._task(index % 27), id=f"{self.split}/{index}", kind="near" if index < 205 else "far")


class ListedEnv(toy_env.CorridorEnv):
    def __init__(self, split: str = "train", **options: Any) -> None:
        super().__init__(split, **options)
        self.panel = Listed(split, 220)

    def expert(self, rng: np.random.Generator, **options: Any) -> Any:
        def reply(seen: Any, info: dict[str, Any]) -> str:
            ways = ("take key", "open door", "right" if self.held or self.key > self.cell else "left")
            return next(way for way in ways if way in info["admissible_actions"])

        return reply


gymnasium.register("Listed-v0", entry_point=ListedEnv)


def test_of_tasks_in_the_order_of_their_names_each_kind_is_played_and_taught(tmp_path: Path) -> None:
    config = agents_config(tmp_path, env={"id": "Listed-v0", "kwargs": {}}, react={"examples": 1}, episodes=4)
    with closing(Run(config)) as run:
        assert sorted(run.chats[0].env.panel.kind(task) for task in run.chosen.tasks) == ["far", "far", "near", "near"]
        assert run.chosen.tasks == choose(run.chats[0].env.panel, "test", 4).tasks
        assert run.panel()["panel"] == "even"
        run.examples("far"), run.examples("near")
        far, near = (int(run._example_tasks()[kind][0].rpartition("/")[2]) for kind in ("far", "near"))
        assert near < 205 <= far


def test_examples_stand_before_the_task_and_end_with_success(tmp_path: Path) -> None:
    with closing(Run(agents_config(tmp_path, env=HOUSE, react={"examples": 2}))) as run:
        tasks = range(12)
        shown = [first_prompt(run, task) for task in tasks]
        kinds = [run.chats[0].env.panel[task].kind for task in tasks]
        again = [first_prompt(run, task) for task in tasks]
    assert shown == again
    for text, kind in zip(shown, kinds, strict=True):
        head, first, second, task = _parts(text)
        assert head.endswith("Here are two examples.")
        for example in (first, second):
            assert example.count("Your task is to: ") == 1 and "\n> " in example and "\nOK.\n> " in example
        assert task.endswith("\n>")
        if kind in ("clean", "heat", "cool"):
            assert all(f"> {kind} " in example for example in (first, second)), "examples are of the task's kind"
    assert {"clean", "heat", "cool"} <= set(kinds)


def _parts(text: str) -> tuple[str, str, str, str]:
    before, _, task = text.partition("\n\nHere is the task.\n")
    head, *examples = before.split("\n\nYou are in the middle of a room.")
    first, second = examples
    return head, first, second, task


def test_a_prompt_that_is_too_long_loses_its_oldest_turns_alone() -> None:
    head = Head(LINE, "Do it.", ["An example."], "Your memory.", "A room.")
    turns = [(f"go {n}", f"You are at {n}." + "x" * 50) for n in range(20)]
    whole = transcript_prompt(head, turns, (), None, 10_000).text
    assert "[...]" not in whole and whole.count("\n> go ") == 20
    short = transcript_prompt(head, turns, ("go 1", "stay"), None, 600).text
    assert len(short) <= 600
    assert (
        short.startswith(f"{head.text()}[...]\n> go ")
        and "An example.\n\nYour memory.\n\nHere is the task.\nA room." in short
    )
    assert short.endswith("> go 19\nYou are at 19." + "x" * 50 + "\nAdmissible actions: go 1, stay\n>")
    bare = transcript_prompt(head, turns, (), None, 50).text
    assert bare == f"{head.text()}[...]\n>", "examples, memory and task stay, even where they alone are longer"


@pytest.mark.parametrize(
    ("reply", "line", "thought"),
    [
        ("> go to desk 1\nYou arrive at desk 1.\n> take pen 1", "go to desk 1", None),
        ("\n\n  go to desk 1  ", "go to desk 1", None),
        ("think: a: b", "think: a: b", "a: b"),
        ("Think: Hm", "Think: Hm", "Hm"),
        ("<think>long\nthoughts</think>\n> look", "look", None),
        ("<think>never ends", "", None),
        ("", "", None),
    ],
)
def test_the_first_line_of_a_reply_counts(reply: str, line: str, thought: str | None) -> None:
    assert LINE.lines(reply)[0] == line
    assert LINE.thought_of(line) == thought


@pytest.mark.parametrize(
    ("reply", "line", "thought"),
    [
        ("Action: search[red mug]\nObservation: x", "search[red mug]", None),
        ("click[Buy Now]", "click[Buy Now]", None),
        ("Action: think[It is red [sic].]", "think[It is red [sic].]", "It is red [sic]."),
        ("think[cut off", "think[cut off", "cut off"),
    ],
)
def test_actions_in_brackets_are_read(reply: str, line: str, thought: str | None) -> None:
    assert BRACKET.lines(reply)[0] == line
    assert BRACKET.thought_of(line) == thought


# ---- brackets: WebShop ------------------------------------------------------------------------------


def test_a_shop_transcript_is_as_published(tmp_path: Path) -> None:
    replies = ["Action: think[I look for it.]", "Action: search[red mug]", "click[Back to Search]", "search[pan]"]
    prompts, _ = asked(tmp_path, "react", replies, env=SHOP, react={"style": "bracket", "examples": 0})
    opening = prompts[0].partition("\n\nHere is the task.\n")[2]
    first, name, task, button, *rest = opening.split("\n")
    assert (first, name, button, rest) == ("WebShop", "Instruction: ", "[Search]", ["", "Action:"]) and task
    assert prompts[1] == f"{prompts[0]} think[I look for it.]\nObservation: OK.\n\nAction:"
    page = prompts[2].removeprefix(f"{prompts[1]} search[red mug]\nObservation:\n")
    assert page.startswith("[Back to Search]\nPage 1 (Total results: ") and "\n[Next >]\n\n[B" in page
    assert page.endswith("\n\nAction:") and task not in page and "button" not in page
    assert prompts[3].endswith("Action: click[Back to Search]\nObservation: [Search]\n\nAction:")


def test_the_page_after_a_purchase_is_its_score(tmp_path: Path) -> None:
    config = agents_config(tmp_path, env=SHOP, react={"style": "bracket", "examples": 1})
    with closing(Run(config)) as run:
        text = first_prompt(run, run.chosen.tasks[0])
    assert "Here is one example.\n\nWebShop\nInstruction: \n" in text
    bought = "Action: click[buy now]\nObservation: Your score (min 0.0, max 1.0): 1.0\n\nHere is the task.\nWebShop\n"
    assert bought in text


def test_an_environment_that_names_no_limit_is_played_to_its_end(tmp_path: Path) -> None:
    env = {"id": "SplitCountdown-v0", "kwargs": {}}
    _, told = asked(tmp_path, "react", ["Action: one"] * 20, env=env)
    assert told["steps"] == 20 and told["endings"] == {"steps": 1}  # it reads no tags, and ends after 20 steps


# ---- memory: Reflexion ------------------------------------------------------------------------------


def test_reflections_are_asked_for_and_remembered(tmp_path: Path) -> None:
    replies = [*["look"] * 2, "New plan: Plan A.", *["inventory"] * 2, "<think>x</think>Plan B.", *["help"] * 2]
    env = {**HOUSE, "kwargs": {"rooms": "small", "max_steps": 2}}
    prompts, told = asked(tmp_path, "reflexion", replies, env=env, reflexion={"trials": 3, "stuck": 0})
    assert len(prompts) == 8, "after the last trial there is nothing to reflect for"
    start = prompts[0]
    opening = start.partition("Here is the task.\n")[2].removesuffix("\n>")
    question, _, rest = prompts[2].partition("\n\nYou are in the middle of a room.")
    assert question.startswith("You will be given the history of a past experience: ")
    assert rest.endswith("\n\nSTATUS: FAIL\n\nNew plan:") and "\n> look\n" in rest and opening[34:] in prompts[2]
    memory = "Your memory for the task below:\nTrial 1:\nPlan A."
    assert prompts[3] == start.replace("\n\nHere is the task.", f"\n\n{memory}\n\nHere is the task.")
    assert prompts[5].endswith(f"\n\nSTATUS: FAIL\n\n{memory}\n\nNew plan:") and "> inventory\n" in prompts[5]
    assert f"\n\n{memory}\nTrial 2:\nPlan B.\n\nHere is the task.\n{opening}" in prompts[6]
    assert told["trials"] == 3 and told["endings"] == {"steps": 3}
    assert [round(at["success"]) for at in told["by_trial"]] == [0, 0, 0]


def test_memory_keeps_the_newest_plans_with_the_numbers_of_their_trials() -> None:
    plans = ["one", "two", "three", "four"]
    assert memory_text(plans, 3) == "Your memory for the task below:\nTrial 2:\ntwo\nTrial 3:\nthree\nTrial 4:\nfour"
    assert memory_text(plans, 0) == memory_text([], 3) == ""
    assert reflection_prompt("h\n", "", None).text.endswith(" again.\n\nh\n\nSTATUS: FAIL\n\nNew plan:")
    assert plan_of("<think>hm</think>\nNew plan:  Go.\n") == "Go." and len(plan_of("x" * 10_000)) == 4_000


def test_a_history_that_is_too_long_for_a_model_loses_its_first_lines() -> None:
    prompt = reflection_prompt("\n".join(f"line {n}" for n in range(99)), "Your memory.", None)
    shorter = prompt.shortened(lambda one: len(one.text) < 600)
    assert shorter is not None and "\n\n[...]\nline " in shorter.text and "line 1\n" not in shorter.text
    assert shorter.text.endswith("line 98\n\nSTATUS: FAIL\n\nYour memory.\n\nNew plan:")


def test_success_at_any_trial_ends_the_episode_and_counts_there(tmp_path: Path) -> None:
    config = agents_config(tmp_path, env=HOUSE, react={"examples": 0}, episodes=1)
    with closing(Run(config)) as run:
        chat = run.chats[0]
        chat.begin(task=0, seed=0)
        expert = chat.env.expert(np.random.default_rng(0))
        solution = []
        chat.env.max_steps = 50
        while not chat.over:
            reply = expert(chat.observation, chat.info)
            solution.append(reply.partition("<action>")[2].removesuffix("</action>"))
            chat.reply(reply)
        assert chat.success
    steps = len(solution)
    env = {**HOUSE, "kwargs": {"rooms": "small", "max_steps": steps}}
    replies = [*["look"] * steps, "Do it.", *solution]
    prompts, told = asked(tmp_path, "reflexion", replies, env=env, reflexion={"trials": 4, "stuck": 0})
    assert len(prompts) == len(replies)
    assert [at["successes"] for at in told["by_trial"]] == [0, 1, 1, 1] and told["success"]["successes"] == 1
    assert told["endings"] == {"solved": 1, "steps": 1} and told["score"] == 1.0
    recording = read_recording(tmp_path / "run/rollouts/seed0/000000.parquet")
    (group,) = recording.groups
    assert [rollout.success for rollout in group.rollouts] == [False, True]
    assert recording.turns is not None and "Trial 1:\nDo it." in recording.turns[steps].prompt


def test_a_trial_that_runs_in_circles_is_given_up(tmp_path: Path) -> None:
    env = {**HOUSE, "kwargs": {"rooms": "small", "max_steps": 20}}
    _, told = asked(tmp_path, "reflexion", ["look"] * 50, env=env, reflexion={"trials": 2, "stuck": 3})
    assert told["endings"] == {"stuck": 2} and told["steps"] == 8
    (tmp_path / "react").mkdir()
    _, told = asked(tmp_path / "react", "react", ["look"] * 50, env=env)
    assert told["endings"] == {"steps": 1}, "react alone plays on"


# ---- direct -----------------------------------------------------------------------------------------


def test_a_reply_of_thought_and_action_is_both() -> None:
    assert LINE.lines("think: I go\nOK.\n> right\n> left") == ["think: I go", "right"]
    assert BRACKET.lines("Action: think[red]\nAction: search[red mug]") == ["think[red]", "search[red mug]"]
    assert LINE.lines("right\n> left") == ["right"] and LINE.lines("") == [""]


def test_direct_reads_the_environments_own_prompt_and_says_what_was_invalid(tmp_path: Path) -> None:
    replies = ["a</think><action>look</action>", "Let me look."]
    prompts, told = asked(tmp_path, "direct", replies, env={**HOUSE, "prompt": "text"})
    assert prompts[0].startswith("You are an expert agent operating in the ALFRED embodied environment.")
    assert "Prior to this step, you have already taken 1 step(s)" in prompts[1]
    assert len(prompts) == told["steps"] == 6 and told["invalid_share"] == pytest.approx(5 / 6)
    assert told["invalid_by_cause"] == {"no tag": pytest.approx(5 / 6)}
    assert told["invalid_replies"] == {"no tag": ["Let me look.", "nonsense"]}
    recording = read_recording(tmp_path / "run/rollouts/seed0/000000.parquet")
    assert recording.turns is not None and [turn.prompt for turn in recording.turns] == prompts
    assert [(turn.reply, turn.cause) for turn in recording.turns[:2]] == [(replies[0], ""), (replies[1], "no tag")]
