"""Exec(y): maps a model's reply to the semantic action it asks for (paper, section 3), and says why another asks for
none.

Two grammars read replies:

    tags      verl-agent's rule: <think>, </think>, <action> and </action> must all be there, and the action stands in
              the first <action>
    thought   for models that somebody else trained: all up to the first </think> is thought, since chat templates open
              it; after it counts the first <action>, or a line "> action", or the whole text

The functions are total: every string has a result, in time linear in its length. No part of a reply is evaluated.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from anchors import INVALID

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_ACTION, CLOSE_ACTION = "<action>", "</action>"

MAX_ACTION_LENGTH = 1_000
"""No action of any environment is longer. A longer reply is malformed."""

Replies = Literal["tags", "thought"]
"""The grammar that replies are read by."""

NO_TAG, NOT_ADMISSIBLE, CUT_THOUGHT, CUT_ACTION, EMPTY, REFUSED = CAUSES = (
    "no tag",
    "not admissible",
    "cut in thought",
    "cut in action",
    "empty",
    "refused",
)
"""Why a reply is `INVALID`: there is no tag, and the text as a whole is no action; it names an action that is not
admissible; its thought or its action never ends; it is empty, or has nothing after its thought; the model refused."""

LENGTH = "length"
"""The `finish_reason` of a reply that ended at its limit of tokens."""
REFUSALS = ("content_filter", "refusal")
"""Those of replies that the model or its server refused."""


def requested_action(reply: str, replies: Replies = "thought") -> str | None:
    """The action text of a reply, in lower case with single spaces. None if the reply is malformed.

    The environment decides whether the action is admissible.
    """
    return _read(reply, replies)[0]


def cause_of(reply: str, replies: Replies = "thought", finish_reason: str | None = None) -> str:
    """Why a reply was not executed, one of `CAUSES`. `finish_reason` is what its server or sampler says of its end."""
    if finish_reason in REFUSALS:
        return REFUSED
    cause = _read(settled(reply, replies, finish_reason), replies)[1]
    if finish_reason == LENGTH and cause in (NO_TAG, EMPTY):
        return CUT_ACTION if CLOSE_THINK in reply else CUT_THOUGHT
    return cause


def settled(reply: str, replies: Replies = "thought", finish_reason: str | None = None) -> str:
    """The reply as an environment is to read it, which sees its text alone: nothing of a reply that was refused, and of
    one that ended at its limit of tokens only what must be whole, an action with both tags after a thought.

    verl-agent's rule, "tags", knows no reasons: it reads every text as it is.
    """
    if replies == "tags" or finish_reason not in (LENGTH, *REFUSALS):
        return reply
    if finish_reason != LENGTH:
        return ""
    if CLOSE_THINK in reply.lower():
        return reply + OPEN_ACTION  # the first action counts, and another one is not whole
    return reply if _read(reply, replies)[1] == CUT_ACTION else OPEN_THINK + reply


def outside_thoughts(reply: str) -> tuple[str, bool]:
    """What a reply says outside its thoughts, and whether the last of them never ends."""
    first = reply.find(CLOSE_THINK)
    at = 0 if first < 0 else first + len(CLOSE_THINK)
    parts = []
    while (begun := reply.find(OPEN_THINK, at)) >= 0:
        parts.append(reply[at:begun])
        end = reply.find(CLOSE_THINK, begun)
        if end < 0:
            return "".join(parts), True
        at = end + len(CLOSE_THINK)
    return "".join([*parts, reply[at:]]), False


def _read(reply: str, replies: Replies) -> tuple[str | None, str]:
    """The action that a reply asks for, and the cause if it is not executed."""
    if replies == "tags":
        return _read_tags(reply)
    if "<" not in reply and ">" not in reply:  # most often, a bare action
        return normalise(reply), NO_TAG if reply.strip() else EMPTY
    said, unfinished = outside_thoughts(reply.lower())
    _, opened, rest = said.partition(OPEN_ACTION)
    if opened:
        action, closed, _ = rest.partition(CLOSE_ACTION)
        return (normalise(action), NOT_ADMISSIBLE) if closed else (None, CUT_ACTION)
    if unfinished:
        return None, CUT_THOUGHT
    for line in map(str.strip, said.splitlines()):  # ReAct's
        if line.startswith(">") and not line[1:].lstrip().startswith("think:"):
            return normalise(line[1:]), NOT_ADMISSIBLE
    return normalise(said), NO_TAG if said.strip() else EMPTY


def _read_tags(reply: str) -> tuple[str | None, str]:
    _, opened, rest = reply.partition(OPEN_ACTION)
    action, closed, _ = rest.partition(CLOSE_ACTION)
    if closed and OPEN_THINK in reply and CLOSE_THINK in reply:
        return normalise(action), NOT_ADMISSIBLE
    if opened and not closed:
        return None, CUT_ACTION
    if OPEN_THINK in reply and CLOSE_THINK not in reply:
        return None, CUT_THOUGHT
    return None, NO_TAG if reply.strip() else EMPTY


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
