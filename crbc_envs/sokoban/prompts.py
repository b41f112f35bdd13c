"""Prompts of Sokoban (paper, appendix "Prompt Templates")."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from crbc_envs.prompts import Template, View

_SOKOBAN_RULES = """\
You are an expert agent operating in the Sokoban environment. Your goal is to push all the boxes onto the target \
spots. Once all boxes are on the targets, you win!

# Rules
You can only push boxes. You can't pull them, so plan ahead to avoid getting stuck.
You can't walk through or push boxes into walls.
To avoid traps, do not push boxes into corners or against walls where they can't be moved again.
"""

_SOKOBAN_IMAGE_LEGEND = """
# Visual Elements in the Image:
Character: A small, green alien-like figure with two antennae and black eyes. It represents you.
Box: A yellow crate marked with an orange "X" across its front. It is the box you need to push.
Target: A black tile outlined in red, with a small red diamond shape in the center. It marks the destination where a \
box should be pushed.
"""

_SOKOBAN_TEXT_LEGEND = """
# Symbols on the board
# wall, _ floor, @ you, + you on a target, $ box, * box on a target, . target
"""

_SOKOBAN_TURN = """
Now it's your turn to make a move (choose ONE action only for the current step).
You should first reason step-by-step about the current situation - observe the positions of boxes and targets, plan a \
path to push a box toward a target, and avoid traps like corners or walls. This reasoning process MUST be enclosed \
within <think> </think> tags.
Once you've finished your reasoning, you should choose an admissible action for current step and present it within \
<action> </action> tags."""


def _admissible_line(view: View) -> str:
    return f"Your admissible actions are [{', '.join(repr(action) for action in view.admissible)}].\n"


def sokoban_image(view: View) -> str:
    """The paper's visual prompt. `<image>` is the place of the frame. It has no history."""
    current = "\n# Current Step\nYour current observation is shown in the image: <image>\n"
    return _SOKOBAN_RULES + _SOKOBAN_IMAGE_LEGEND + current + _admissible_line(view) + _SOKOBAN_TURN


def sokoban_text(view: View) -> str:
    """The paper's prompt with the board as text instead of the image."""
    current = f"\n# Current Step\nYour current observation is:\n{view.observation}\n"
    return _SOKOBAN_RULES + _SOKOBAN_TEXT_LEGEND + current + _admissible_line(view) + _SOKOBAN_TURN


def sokoban_compact(view: View) -> str:
    """The board alone: about 60 tokens, the same number for all boards of a size.

    Where records end with moves that left this board as it is, a line names them. Without it, an agent that walks into
    a wall sees the same prompt again, and walks into it until the episode ends.
    """
    since = itertools.takewhile(lambda record: record[0] == view.observation, reversed(view.history))
    blocked = dict.fromkeys(move for _, move in since if move in view.admissible)
    line = f"Blocked: {', '.join(sorted(blocked))}\n" * bool(blocked)
    return f"Sokoban\n{view.observation}\n{line}Your move?"


TEMPLATES: Mapping[str, Template] = {"image": sokoban_image, "text": sokoban_text, "compact": sokoban_compact}
"""By style."""
