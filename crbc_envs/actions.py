"""Exec(y): from a model's reply to the semantic action it asks for (paper, section 3).

Total: every string has an answer, in time linear in its length, and none of it is ever evaluated.
"""

from __future__ import annotations

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_ACTION, CLOSE_ACTION = "<action>", "</action>"

MAX_ACTION_LENGTH = 1_000
"""No action of any environment is longer; what is longer is malformed."""


def requested_action(reply: str, require_tags: bool = False) -> str | None:
    """The action text a reply asks for, lower case and with single spaces; None if it is malformed.

    A tagged reply is `<think>...</think>` and the action between the first `<action>` and the next
    `</action>`; all four tags must be there. Text without any of these tags is the action itself,
    unless `require_tags`. Whether the action is admissible is for the environment to say.
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


def tagged(action: str, thought: str = "") -> str:
    """The reply that thinks `thought` and takes `action`."""
    return f"{OPEN_THINK}{thought}{CLOSE_THINK}{OPEN_ACTION}{action}{CLOSE_ACTION}"


def normalise(text: str) -> str | None:
    """Lower case, single spaces; None for what is empty or longer than any action."""
    if len(text) > MAX_ACTION_LENGTH:
        return None
    return " ".join(text.lower().split()) or None
