"""Exec(y): maps a model's reply to the semantic action it asks for (paper, section 3), and says why another asks for
none.

Two grammars read replies:

    tags      verl-agent's rule: all of <think>, </think>, <action> and </action> are there, the latter two in any case,
              and the action stands in the first <action>
    thought   for models that somebody else trained: all up to the first </think> is thought, since chat templates open
              it; after it counts the first <action> that is not empty, or a line "> action", or the whole text. What
              other models write for these two tags is read as they are (`_MARKS`)

The functions are total: every string has a result, in time linear in its length. No part of a reply is evaluated.
"""

from __future__ import annotations

import re
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

LENGTH, REFUSAL = "length", "refusal"
LIMITS = frozenset({LENGTH, "max_tokens", "max_output_tokens", "model_context_window_exceeded", "model_length"})
"""The `finish_reason`, in lower case, of a reply that ended at a limit of tokens, as servers call it."""
REFUSALS = frozenset({REFUSAL, "content_filter", "sensitive", "safety", "recitation", "prohibited_content"})
"""That of a reply that the model or its server refused."""

_MARKS = re.compile(
    r"(?P<open><(?:think|thinking|thought|reasoning|seed:think)>|\[think\]|<\|channel\|?>(?:analysis|commentary|thought)\b)"
    r"|</(?:think|thinking|thought|reasoning|seed:think)>|\[/think\]|<channel\|>|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
"""How a thought begins and ends, also in the replies of gpt-oss, Magistral, Gemma and Seed."""


def requested_action(reply: str, replies: Replies = "thought") -> str | None:
    """The action text of a reply, in lower case with single spaces. None if the reply is malformed.

    The environment decides whether the action is admissible.
    """
    return _read(reply, replies)[0]


def cause_of(reply: str, replies: Replies = "thought", finish_reason: str | None = None) -> str:
    """Why a reply was not executed, one of `CAUSES`. `finish_reason` is what its server or sampler says of its end."""
    ended = (finish_reason or "").lower()
    if ended in REFUSALS:
        return REFUSED
    cause = _read(settled(reply, replies, finish_reason), replies)[1]
    if ended in LIMITS and cause in (NO_TAG, EMPTY):
        return CUT_ACTION if CLOSE_THINK in _with_tags(reply) else CUT_THOUGHT
    return cause


def settled(reply: str, replies: Replies = "thought", finish_reason: str | None = None) -> str:
    """The reply as an environment is to read it, which sees its text alone: nothing of a reply that was refused, and of
    one that ended at its limit of tokens only what must be whole, an action with both tags after a thought.

    verl-agent's rule, "tags", knows no reasons: it reads every text as it is.
    """
    ended = (finish_reason or "").lower()
    if replies == "tags" or ended not in LIMITS | REFUSALS:
        return reply
    if ended in REFUSALS:
        return ""
    if CLOSE_THINK in _with_tags(reply):
        return reply + OPEN_ACTION  # the first action counts, and another one is not whole
    return reply if _read(reply, replies)[1] == CUT_ACTION else OPEN_THINK + reply


def outside_thoughts(reply: str) -> tuple[str, bool]:
    """What a reply says outside its thoughts, and whether the last of them never ends."""
    reply = _with_tags(reply)
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
    if "<" not in reply and ">" not in reply and "[" not in reply:  # most often, a bare action
        return normalise(reply), NO_TAG if reply.strip() else EMPTY
    said, unfinished = outside_thoughts(reply)
    said = said.lower()
    end = -1
    while (start := said.find(OPEN_ACTION, end + 1)) >= 0:
        start += len(OPEN_ACTION)
        if (end := said.find(CLOSE_ACTION, start)) < 0:
            return None, CUT_ACTION
        if action := normalise(said[start:end]):  # an empty pair quotes how to reply
            return action, NOT_ADMISSIBLE
    if end >= 0:
        return None, NOT_ADMISSIBLE
    if unfinished:
        return None, CUT_THOUGHT
    if CLOSE_ACTION in said:
        return None, NO_TAG
    for line in map(str.strip, said.splitlines()):  # ReAct's
        if line.startswith(">") and not line[1:].lstrip().startswith("think:"):
            return normalise(line[1:]), NOT_ADMISSIBLE
    return normalise(said), NO_TAG if said.strip() else EMPTY


def _with_tags(reply: str) -> str:
    """The reply with the marks of other models as the two tags of a thought."""
    return _MARKS.sub(lambda mark: OPEN_THINK if mark["open"] else CLOSE_THINK, reply)


def as_thought(text: str, whole: bool) -> str:
    """A thought that was kept apart, in its tags, the second one only if it is `whole`. Marks inside it end nothing."""
    inner = _MARKS.sub(lambda mark: f"{mark[0][0]} {mark[0][1:]}", text)
    return f"{OPEN_THINK}{inner}{CLOSE_THINK if whole else ''}"


def _read_tags(reply: str) -> tuple[str | None, str]:
    _, opened, rest = reply.lower().partition(OPEN_ACTION)
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
