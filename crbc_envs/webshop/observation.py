"""Observations as prompts show them."""

from __future__ import annotations

import re

LONGEST_LINE = 300
"""Characters of a line in the compact view; descriptions are longer, and tiny models read few."""

_HEADS = (
    "WebShop\nInstruction: \n{}\n",
    "Instruction:\n{}\n",
    "WebShop [SEP] Instruction: [SEP] {} [SEP] ",
    "Instruction: [SEP] {} [SEP] ",
)


_IDLE = re.compile(r"You have clicked .*|Page \d+ \(Total results: \d+\)|Rating: N\.A\.")
"""Lines that tell what the marks tell too, or always the same."""


def without_task(observation: str, task: str) -> str:
    """An observation in `text_rich` or `text` without its lines that tell the task; any other as it is."""
    for head in _HEADS:
        told = head.format(task)
        if told in observation:
            return observation.replace(told, "", 1).rstrip("\n")
    return observation


def compact(observation: str) -> str:
    """A `text_rich` observation with "[x]" for what can be clicked and "[x]*" for what was, without the number
    of results and the rating that no product has."""
    lines = (line.strip()[:LONGEST_LINE] for line in observation.splitlines())
    shown = (_brackets(line) for line in lines if line and not _IDLE.fullmatch(line))
    return "".join(f"{line}\n" for line in shown)


def _brackets(line: str) -> str:
    if line == "[button] Search [button_]":
        return "search[...]"
    for opening, closing, star in (("[button] ", " [button_]", ""), ("[clicked button] ", " [clicked button_]", "*")):
        if line.startswith(opening) and line.endswith(closing):
            return f"[{line.removeprefix(opening).removesuffix(closing).lower()}]{star}"
    return line
