"""Parses a line typed in `crbc play`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

COMMANDS = {
    "help": "the actions, the keys and this list",
    "again": "the same task from its start",
    "next": "another task",
    "quit": "the end; Ctrl-D too",
}
"""Commands of `crbc play`, which cost no step."""

Form = tuple[str, str]
"""What stands before and after the words of one's own in an action: ("search[", "]")."""


@dataclass(frozen=True)
class Meaning:
    """A command or a reply for the environment, the actions that may be meant instead, and one that is similar."""

    command: str = ""
    reply: str = ""
    choices: tuple[str, ...] = ()
    near: str = ""


def meaning(line: str, actions: Sequence[str], accepts: Callable[[str], bool], forms: Iterable[Form] = ()) -> Meaning:
    """What a line means where `actions` are admissible.

    A command or an action may be cut where it is clear already. The environment `accepts` other replies too; `forms`
    are the ends of its actions that take words of one's own.
    """
    typed = " ".join(line.lower().split())
    known = [action for action in actions if action not in COMMANDS]
    if typed in ("?", *COMMANDS):
        return Meaning(command="help" if typed == "?" else typed, choices=tuple(_having(typed, known)))
    for reply in (line, *_filled(typed, forms)):
        if accepts(reply):
            return Meaning(reply=reply)
    choices = (*starting(typed, COMMANDS), *(starting(typed, known) or _having(typed, known)))
    if len(choices) != 1:
        return Meaning(choices=choices, near=_near(typed, known) if not choices else "")
    if choices[0] in COMMANDS:
        return Meaning(command=choices[0])
    open_ended = any(choices[0].startswith(head) for head, _ in forms)
    return Meaning(choices=choices) if open_ended else Meaning(reply=choices[0])


def starting(typed: str, words: Iterable[str]) -> list[str]:
    """The words that start with what was typed."""
    return [word for word in words if word.lower().startswith(typed.lower())]


def _having(typed: str, actions: Iterable[str]) -> list[str]:
    """The actions in which a later word starts so, such as "click[buy now]" for "buy"."""
    inside = re.compile(rf"[\s\[]{re.escape(typed)}")
    return [action for action in actions if inside.search(action.lower())]


def _filled(typed: str, forms: Iterable[Form]) -> Iterator[str]:
    """The actions with words of one's own that were typed as "search shoes" or "search[shoes"."""
    for head, tail in forms:
        verb = head.rstrip(" [(<{:") + " "
        for start in (head, verb):
            said = typed.removeprefix(start).removesuffix(tail)
            if typed.startswith(start) and said:
                yield head + said + tail


def _near(typed: str, actions: Sequence[str]) -> str:
    """The command or action that is nearly what was typed, or ""."""
    near = get_close_matches(typed, COMMANDS, n=1, cutoff=0.7) or get_close_matches(typed, actions, n=1, cutoff=0.8)
    return near[0] if near else ""
