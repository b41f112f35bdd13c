"""What the policy is shown: the paper's templates and their two-record window."""

from __future__ import annotations

import pytest

from crbc_envs.core import AnchorEnv
from crbc_envs.prompts import HISTORY_LENGTH, PromptWindow, View
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
