"""Exec(y): maps a model's reply to the semantic action it asks for (paper, section 3).

The function is total: every string has a result, in time linear in its length. No part of a reply is evaluated.
"""

from __future__ import annotations

from collections.abc import Collection

from anchors import INVALID

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_ACTION, CLOSE_ACTION = "<action>", "</action>"

MAX_ACTION_LENGTH = 1_000
"""No action of any environment is longer. A longer reply is malformed."""


def requested_action(reply: str, require_tags: bool = False) -> str | None:
    """The action text of a reply, in lower case with single spaces. None if the reply is malformed.

    A tagged reply has `<think>...</think>` and the action between the first `<action>` and the next
    `</action>`; it must contain all four tags. Text without any of these tags is itself the action,
    unless `require_tags` is set. The environment decides whether the action is admissible.
    """
    start = reply.find(OPEN_ACTION)
    if start >= 0:
        start += len(OPEN_ACTION)
        end = reply.find(CLOSE_ACTION, start)
        if end < 0 or OPEN_THINK not in reply or CLOSE_THINK not in reply:
            return None
        return normalise(reply[start:end])
    tagged = any(tag in reply for tag in (OPEN_THINK, CLOSE_THINK, CLOSE_ACTION))
    return None if require_tags or tagged else normalise(reply)


def admissible_action(requested: str | None, admissible: Collection[str]) -> str:
    """The admissible action equal to `requested`, ignoring case and spacing; otherwise `INVALID`."""
    if requested is None or requested in admissible:
        return requested or INVALID
    return next((action for action in admissible if normalise(action) == requested), INVALID)


def tagged(action: str, thought: str = "") -> str:
    """The tagged reply with this thought and action."""
    return f"{OPEN_THINK}{thought}{CLOSE_THINK}{OPEN_ACTION}{action}{CLOSE_ACTION}"


def normalise(text: str) -> str | None:
    """The text in lower case with single spaces. None if it is empty or too long for an action."""
    if len(text) > MAX_ACTION_LENGTH:
        return None
    return " ".join(text.lower().split()) or None
