"""Prepares observations for prompts."""

from __future__ import annotations

import re

LONGEST_LINE = 100
"""Most characters of a line in the compact view, but for actions. Titles and descriptions are longer, but small models
read little."""

SEARCH = "search[...]"
"""The mark of the search button in the compact view."""

_HEADS = (
    "WebShop\nInstruction: \n{}\n",
    "Instruction:\n{}\n",
    "WebShop [SEP] Instruction: [SEP] {} [SEP] ",
    "Instruction: [SEP] {} [SEP] ",
)


_IDLE = re.compile(r"You have clicked .*|Page \d+ \(Total results: \d+\)|Rating: N\.A\.")
"""Lines that repeat the marks of buttons, or are always the same."""


def without_task(observation: str, task: str) -> str:
    """A `text_rich` or `text` observation without its lines with the task. Others are returned unchanged."""
    for head in _HEADS:
        task_lines = head.format(task)
        if task_lines in observation:
            return observation.replace(task_lines, "", 1).rstrip("\n")
    return observation


def compact(observation: str) -> str:
    """A short form of a `text_rich` observation: "click[x]" is possible, "click[x*]" was done.

    Actions stand there as a reply writes them, so that a small model can copy them. What follows a word tells whether
    it can be chosen, or was. It leaves out the number of results and the rating, which no product has.
    """
    lines = (line.strip() for line in observation.splitlines())
    shown = (_brackets(line) for line in lines if line and not _IDLE.fullmatch(line))
    return "".join(f"{line}\n" for line in shown)


def mark(action: str) -> str:
    """The mark of an admissible action in the short form of its page."""
    if action.startswith("search[") or action == "click[search]":
        return SEARCH
    return action.lower()


def _brackets(line: str) -> str:
    if line == "[button] Search [button_]":
        return SEARCH
    for opening, closing, star in (("[button] ", " [button_]", ""), ("[clicked button] ", " [clicked button_]", "*")):
        if line.startswith(opening) and line.endswith(closing):
            return f"click[{line.removeprefix(opening).removesuffix(closing).lower()}{star}]"
    return line[:LONGEST_LINE]
