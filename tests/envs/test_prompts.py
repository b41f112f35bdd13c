"""What the policy is shown: the paper's templates and their two-record window."""

from __future__ import annotations

import numpy as np
import pytest

from anchors import INVALID
from crbc_envs.core import AnchorEnv
from crbc_envs.prompts import GENERIC, HISTORY_LENGTH, IMAGE, PromptWindow, View
from crbc_envs.sokoban.env import SokobanEnv

INFO = {"task": "Push every box.", "admissible_actions": ("up", "down"), "step": 3}
BOARD = "# #\n# @"


@pytest.mark.parametrize("style", ["text", "image"])
def test_the_paper_prompts_hold_the_rules_the_actions_and_the_tags(style):
    prompt = PromptWindow.of(SokobanEnv, style).prompt(BOARD, INFO)
    for sentence in (
        "You are an expert agent operating in the Sokoban environment.",
        "You can only push boxes. You can't pull them, so plan ahead to avoid getting stuck.",
        "You can't walk through or push boxes into walls.",
        "do not push boxes into corners or against walls where they can't be moved again.",
        "Your admissible actions are ['up', 'down'].",
        "<think> </think>",
        "<action> </action>",
    ):
        assert sentence in prompt


def test_the_text_prompt_shows_the_board_and_the_image_prompt_a_place_for_the_frame():
    text, image = (PromptWindow.of(SokobanEnv, style).prompt(BOARD, INFO) for style in ("text", "image"))
    assert f"observation is:\n{BOARD}\n" in text
    assert "<image>" not in text
    assert image.count("<image>") == 1
    assert BOARD not in image
    assert "green alien-like figure" in image


def test_the_compact_prompt_is_the_board_and_nothing_else():
    assert PromptWindow.of(SokobanEnv, "compact").prompt(BOARD, INFO) == f"Sokoban\n{BOARD}\nYour move?"


def test_the_compact_prompt_names_moves_that_left_the_board_as_it_is():
    window = PromptWindow.of(SokobanEnv, "compact", history=3)

    def told() -> str:
        return window.prompt(BOARD, INFO).removeprefix(f"Sokoban\n{BOARD}\n").removesuffix("Your move?")

    window.record("another board", "down")
    assert told() == ""  # it led here
    for action in ("up", INVALID, "up", "down"):
        window.record(BOARD, action)
    assert told() == "Blocked: down, up\n"
    window.record(BOARD, INVALID)
    window.record(BOARD, INVALID)
    window.record(BOARD, INVALID)
    assert told() == ""  # the records reach back no further
    window.record(BOARD, "up")
    window.record("another board", "up")
    assert told() == ""


def test_a_window_keeps_the_two_most_recent_records_in_order():
    seen: list[View] = []
    window = PromptWindow(template=lambda view: seen.append(view) or "")
    for t in range(4):
        window.prompt(f"board {t}", INFO)
        window.record(f"board {t}", f"move {t}")
    assert HISTORY_LENGTH == 2
    assert [view.history for view in seen] == [
        (),
        (("board 0", "move 0"),),
        (("board 0", "move 0"), ("board 1", "move 1")),
        (("board 1", "move 1"), ("board 2", "move 2")),
    ]
    assert seen[3] == View("Push every box.", "board 3", ("up", "down"), 3, seen[3].history)


def test_two_windows_share_no_history():
    one, other = PromptWindow.of(SokobanEnv, "text"), PromptWindow.of(SokobanEnv, "text")
    one.record("board", "up")
    assert (len(one.history), len(other.history)) == (1, 0)


@pytest.mark.parametrize("style", sorted(SokobanEnv.templates))
def test_sokoban_prompts_hold_no_history(style):
    window = PromptWindow.of(SokobanEnv, style)
    before = window.prompt(BOARD, INFO)
    window.record("an old board", "an old move")
    assert window.prompt(BOARD, INFO) == before


class Chess(AnchorEnv):
    domain = "chess"


def test_an_unknown_style_or_domain_is_refused_with_what_is_known():
    with pytest.raises(ValueError, match="no prompt style 'haiku' for sokoban; known: text, compact, image"):
        PromptWindow.of(SokobanEnv, "haiku")
    with pytest.raises(ValueError, match="no prompt style 'image' for chess; known: text, compact"):
        PromptWindow.of(Chess, "image")
    with pytest.raises(ValueError, match="did you mean 'compact'"):
        PromptWindow.of(Chess, "compat")


# ---- generic prompts -------------------------------------------------------------------------------


def view(**changes):
    base = {"task": "Open the door.", "observation": "A hall.", "admissible": ("go", "wait"), "step": 0, "history": ()}
    return View(**{**base, **changes})


def test_the_generic_text_has_task_records_observation_actions_and_the_format():
    text = GENERIC["text"](view(step=3, history=(("Hall 1", "go"), ("Hall 2", "wait"))))
    for part in (
        "Your task is: Open the door.\n",
        "You have taken 3 step(s). Your last 2 observation(s) and action(s):",
        "[Observation 2: 'Hall 1', Action 2: 'go']",
        "[Observation 3: 'Hall 2', Action 3: 'wait']",
        "You are now at step 4. Your current observation is: A hall.",
        "['go', 'wait']",
        "<think> </think>",
        "<action> </action>",
    ):
        assert part in text
    assert "have taken" not in GENERIC["text"](view())
    assert "admissible" not in GENERIC["text"](view(admissible=()))


def test_the_generic_compact_prompt_is_short():
    assert GENERIC["compact"](view(history=(("Hall 1", "go"),))) == (
        "Task: Open the door.\nHall 1\n> go\nA hall.\nActions: go, wait\nYour action?"
    )


@pytest.mark.parametrize("style", sorted(GENERIC))
def test_a_frame_has_its_place_in_a_generic_prompt_and_other_arrays_are_written_out(style):
    info = {"task": "Look.", "admissible_actions": ("a",), "step": 0}
    window = PromptWindow.of(Chess, style)
    frame = np.zeros((4, 5, 3), dtype=np.uint8)
    asked = window.ask(frame, info)
    assert asked.text.count(IMAGE) == 1 and len(asked.images) == 1
    numbers = np.arange(2_000) / 8
    asked = window.ask(numbers, info)
    assert not asked.images and "249.875" in asked.text and "..." not in asked.text


@pytest.mark.parametrize("style", sorted(GENERIC))
def test_only_the_template_marks_the_place_of_a_frame(style):
    info = {"task": f"Look at {IMAGE}.", "admissible_actions": (f"go {IMAGE}",), "step": 1}
    window = PromptWindow.of(Chess, style)
    window.record(f"a sign: {IMAGE}", "go")
    asked = window.ask(np.zeros((4, 5, 3), dtype=np.uint8), info)
    assert asked.text.count(IMAGE) == 1 == len(asked.images)
    assert "Look at [image]" in asked.text
    assert f"Look at {IMAGE}" in window.ask("a text", info).text


def test_history_and_system_message_are_the_window_s():
    info = {"task": "Look.", "admissible_actions": ("a",), "step": 5}
    window = PromptWindow.of(Chess, "compact", history=3, system="You play chess.")
    for step in range(5):
        window.record(f"seen {step}", f"move {step}")
    asked = window.ask("now", info)
    assert asked.system == "You play chess."
    assert "seen 2\n> move 2" in asked.text and "seen 1" not in asked.text
    window = PromptWindow.of(Chess, "compact", history=0)
    window.record("seen", "move")
    assert "seen" not in window.prompt("now", info)


def test_a_template_of_one_s_own_is_used_as_it_is():
    info = {"task": "Look.", "admissible_actions": ("a",), "step": 0}
    assert PromptWindow.of(Chess, lambda view: view.task.upper()).prompt("now", info) == "LOOK."
