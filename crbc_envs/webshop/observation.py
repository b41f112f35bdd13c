"""Prepares observations for prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    """A short form of a `text_rich` observation: "click[x]" is possible, and a star follows what was clicked.

    Actions stand there as a reply writes them, so that a small model can copy them. The values of options stand alone:
    after "click[" such a model repeats what follows a "click[" above it, and which value it clicks must come from the
    task. It leaves out the number of results and the rating, which no product has.
    """
    shown = (_brackets(line) for line in observation.splitlines() if line.strip() and not _IDLE.fullmatch(line.strip()))
    return "".join(f"{line}\n" for line in shown)


def chosen(observation: str, done: Sequence[str]) -> list[str]:
    """The values of options that a `text_rich` page shows as clicked, in the order in which `done` clicked them.

    What was clicked before the actions of `done` comes first, in the page's order.
    """
    opening, closing = "[clicked button] ", " [clicked button_]"
    lines = [line.strip() for line in observation.splitlines() if line.startswith(" ")]
    values = [line.removeprefix(opening).removesuffix(closing).lower() for line in lines if line.startswith(opening)]
    last = {action: place for place, action in enumerate(done)}
    return sorted(values, key=lambda value: last.get(f"click[{value}]", -1))


def mark(action: str) -> str:
    """The mark of an admissible action in the short form of its page."""
    if action.startswith("search[") or action == "click[search]":
        return SEARCH
    return action.lower()


def _brackets(line: str) -> str:
    option, line = line.startswith(" "), line.strip()
    if line == "[button] Search [button_]":
        return SEARCH
    for opening, closing, star in (("[button] ", " [button_]", ""), ("[clicked button] ", " [clicked button_]", "*")):
        if line.startswith(opening) and line.endswith(closing):
            value = line.removeprefix(opening).removesuffix(closing).lower() + star
            return value if option else f"click[{value}]"
    return line[:LONGEST_LINE]
