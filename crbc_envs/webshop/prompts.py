"""Prompts of WebShop (paper, appendix "Prompt Templates")."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anchors import INVALID
from crbc_envs.prompts import CUT, Template, View
from crbc_envs.webshop import observation as shop

_WEBSHOP_TURN = """
Now it is your turn to take one action for the current step. First reason step by step about the current situation, \
then carefully choose which admissible action best advances the shopping goal. This reasoning process MUST be enclosed \
within <think>...</think>. Once you have finished your reasoning, choose an admissible action for the current step and \
present it within <action>...</action>."""

WEBSHOP_LIMIT = 13_000
"""In characters. A longer prompt has no history, as in verl-agent."""

_BOUGHT, _SCORE = "Thank you for shopping with us!", re.compile(r"(Your score \(min 0\.0, max 1\.0\))\n([\d.]+)")
"""How the page after a purchase begins, and the score on it."""


def webshop_text(view: View) -> str:
    """The paper's prompt. At the first step it has no sentences about earlier steps.

    The pages are shown without the task, because the task is at the top of the prompt.
    """
    lines = [
        "You are an expert autonomous agent operating in the WebShop e-commerce environment. "
        f"Your task is to: {view.task}."
    ]
    current = (
        f"You are now at step {view.step + 1} and your current observation is: "
        f"{shop.without_task(view.observation, view.task)}\n"
        f"Your admissible actions for the current situation are: ["
        + ",\n".join(f"'{action}'" for action in view.admissible)
        + "]."
    )
    if view.step:
        first = view.step - len(view.history) + 1
        records = "\n".join(
            f"[Observation {k}: '{shop.without_task(seen, view.task)}', Action {k}: '{action}']"
            for k, (seen, action) in enumerate(view.history, first)
        )
        past = (
            f"Prior to this step, you have already taken {view.step} step(s). Below are the most recent "
            f"{len(view.history)} observations and the corresponding actions you took:\n{records}"
        )
        if sum(map(len, (*lines, past, current, _WEBSHOP_TURN))) <= WEBSHOP_LIMIT:
            lines.append(past)
    return "\n".join([*lines, current]) + "\n" + _WEBSHOP_TURN


def webshop_compact(view: View) -> str:
    """A short prompt of 50 to 600 tokens: the task, the page (`observation.compact`), and the options that were chosen.

    All is in lower case, as actions are, so that a word of the task looks alike in a title and in an option.
    The page alone lists the admissible actions. So those of lines that were cut off stand before the rest of the page,
    and all of them before a page in a form without buttons ("text", "html", "url"), which is shown as it is.
    """
    page, buttons = shop.without_task(view.observation, view.task), "button_]" in view.observation
    page = (shop.compact(page) if buttons else f"{page}\n").lower()
    if not buttons or view.observation.startswith(CUT):
        lines = {line.replace("*]", "]").removesuffix("*") for line in page.splitlines()}
        shown = lines | {f"click[{line}]" for line in lines}  # options stand there without "click[]"
        gone = [mark for mark in map(shop.mark, view.admissible) if mark not in shown]
        marks = "".join(f"{mark}\n" for mark in dict.fromkeys(gone))
        page = CUT * view.observation.startswith(CUT) + marks + page.removeprefix(CUT)
    chosen = shop.chosen(view.observation, [action for _, action in view.history])
    page += f"Chosen: {', '.join(chosen)}\n" * bool(chosen)
    refused = "That is not possible.\n" * (view.history[-1:] != () and view.history[-1][1] == INVALID)
    return f"Task: {view.task.lower()}\n{page}{refused}Your action?"


def webshop_transcript(view: View) -> str:
    """A page as a ReAct transcript shows it: buttons in brackets, clicked ones in two, the task on the first page."""
    page = view.observation if view.step == 0 else shop.without_task(view.observation, view.task)
    if (bought := _SCORE.search(page)) is not None and page.startswith(_BOUGHT):
        return f"{bought[1]}: {bought[2]}"  # the last page lists much else, and an agent has nothing to do there
    for name, opening, closing in (("clicked button", "[[", "]]"), ("button", "[", "]")):
        page = page.replace(f"[{name}] ", opening).replace(f" [{name}_]", closing)
    return page.rstrip("\n")


TEMPLATES: Mapping[str, Template] = {
    "text": webshop_text,
    "compact": webshop_compact,
    "transcript": webshop_transcript,
}
"""By style."""
