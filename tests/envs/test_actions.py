"""Exec(y): every string has an answer, and none is ever evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbc_envs.actions import (
    CAUSES,
    CUT_ACTION,
    CUT_THOUGHT,
    EMPTY,
    MAX_ACTION_LENGTH,
    NO_TAG,
    NOT_ADMISSIBLE,
    REFUSED,
    cause_of,
    outside_thoughts,
    requested_action,
    settled,
    tagged,
)

TAGS = ("<think>", "</think>", "<action>", "</action>")
texts = st.lists(
    st.sampled_from([*TAGS, "<action", "up", " ", "\n", ">", "> up", "\x00", "go to desk 1"]) | st.text(max_size=5)
).map("".join)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<think>push it</think><action>up</action>", "up"),
        ("<think></think> so: <action>\n Go  TO\tdesk 1 </action> done", "go to desk 1"),
        ("<think>a</think><action>up</action><action>down</action>", "up"),
        ("<think>a</think><action>up</action> or down</action>", "up"),
        ("<think><think>a</think></think><action>left</action>", "left"),
        ("<think>a</think><action><action>up</action></action>", "<action>up"),
        ("<think>a</think><action>ein schönes kleid \U0001f457</action>", "ein schönes kleid \U0001f457"),
        ("<think>a</think><action>ÉCLAIR</action>", "éclair"),
        ("<think>a</think><Action>up</ACTION>", "up"),
        ("<think>a</think><action>\ud800</action>", "\ud800"),
    ],
)
@pytest.mark.parametrize("replies", ["tags", "thought"])
def test_a_tagged_reply_asks_for_its_first_action(reply, action, replies):
    assert requested_action(reply, replies) == action


NOTHING = {
    "<think>a<action>up</action>": (CUT_THOUGHT, CUT_THOUGHT),
    "<think>up": (CUT_THOUGHT, CUT_THOUGHT),
    "<think>a</think><action>up": (CUT_ACTION, CUT_ACTION),
    "<think>a</think></action>up<action>": (CUT_ACTION, CUT_ACTION),
    "<think>a</think>": (NO_TAG, EMPTY),
    "<think>a</think><action></action>": (NOT_ADMISSIBLE, NOT_ADMISSIBLE),
    "<think>a</think><action> \n\t </action>": (NOT_ADMISSIBLE, NOT_ADMISSIBLE),
    "<think>a</think><action>" + "x" * (MAX_ACTION_LENGTH + 1) + "</action>": (NOT_ADMISSIBLE, NOT_ADMISSIBLE),
    "x" * (MAX_ACTION_LENGTH + 1): (NO_TAG, NO_TAG),
    "": (EMPTY, EMPTY),
    "   ": (EMPTY, EMPTY),
    "\u00a0\u2003": (EMPTY, EMPTY),
    "\x00" * 1_000_000: (NO_TAG, NO_TAG),
    "<think>" * 200_000: (CUT_THOUGHT, CUT_THOUGHT),
    "<action>" * 200_000: (CUT_ACTION, CUT_ACTION),
    "<think></think>" * 200_000 + "<action>" * 200_000: (CUT_ACTION, CUT_ACTION),
    ">\n" * 200_000: (NO_TAG, NOT_ADMISSIBLE),
}
"""Replies that ask for nothing, and why by either grammar."""


@pytest.mark.parametrize(("reply", "causes"), NOTHING.items(), ids=[repr(reply[:40]) for reply in NOTHING])
def test_a_malformed_reply_asks_for_nothing(reply, causes):
    assert requested_action(reply, "tags") is requested_action(reply, "thought") is None
    assert (cause_of(reply, "tags"), cause_of(reply, "thought")) == causes


THOUGHTS = {
    "plan</think><action>look</action>": "look",
    "<action>look</action>": "look",
    "<think>a</think>\nlook": "look",
    "plan</think>\n\n> Look": "look",
    "plan</think>\n> think: a mug\n> look\n> up": "look",
    "I see it.\n> look": "look",
    "<THINK>a</THINK><Action>Look</Action>": "look",
    "first <action>up</action></think><action>look</action>": "look",
    "a</think>b<think>c<action>up</action></think><action>look</action>": "look",
    "<action>look</action><think>later": "look",
    " Go  To\nDesk 1 ": "go to desk 1",
    "\x00": "\x00",
    "<b>up</b>": "<b>up</b>",
    "x" * MAX_ACTION_LENGTH: "x" * MAX_ACTION_LENGTH,
}
"""What models write that were not trained on these tags, and the action. verl-agent's rule reads none of them so."""


@pytest.mark.parametrize(("reply", "action"), THOUGHTS.items(), ids=[repr(reply[:40]) for reply in THOUGHTS])
def test_what_stands_outside_the_thought_counts(reply, action):
    assert requested_action(reply) == action != requested_action(reply, "tags")
    assert cause_of(reply) in (NOT_ADMISSIBLE, NO_TAG)  # if the environment refuses it


@pytest.mark.parametrize(
    "reply", ["<think>so <action>up</action></think>", "so <action>up</action></think>", "up</think>"]
)
def test_an_action_that_a_thought_rehearses_is_never_executed(reply):
    assert requested_action(reply) is None and cause_of(reply) == EMPTY


CUT = {
    "": CUT_THOUGHT,
    "look": CUT_THOUGHT,
    "I could <action>up</action> or": CUT_THOUGHT,
    "<action>go to de": CUT_ACTION,
    "plan</think>": CUT_ACTION,
    "plan</think>go to desk 1": CUT_ACTION,
    "plan</think>\n> go to desk 1": CUT_ACTION,
    "plan</think><action>go to de": CUT_ACTION,
}


@pytest.mark.parametrize(("reply", "cause"), CUT.items())
def test_of_a_reply_cut_at_its_limit_only_a_whole_action_counts(reply, cause):
    assert requested_action(settled(reply, "thought", "length")) is None
    assert cause_of(reply, "thought", "length") == cause
    assert settled(reply, "thought", "stop") == settled(reply, "tags", "length") == reply
    whole = "plan</think><action>look</action> and now"
    assert requested_action(settled(whole, "thought", "length")) == "look"
    assert cause_of("<think>push", "tags", "length") == CUT_THOUGHT
    assert cause_of("<think>a</think><act", "tags", "length") == CUT_ACTION


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
def test_nothing_of_a_refused_reply_is_executed(reason):
    assert settled("look", "thought", reason) == "" and cause_of("look", "thought", reason) == REFUSED


@given(texts | st.text(), st.sampled_from(["tags", "thought"]), st.sampled_from([None, "stop", "length", "refusal"]))
@settings(max_examples=500)
def test_every_string_has_an_answer_in_normal_form(reply, replies, reason):
    action = requested_action(settled(reply, replies, reason), replies)
    assert cause_of(reply, replies, reason) in CAUSES
    if action is not None:
        assert action == " ".join(action.split())
        assert action == action.lower() != ""
        assert replies != "tags" or all(tag in reply for tag in TAGS)
        assert replies == "tags" or reason != "length" or "</think>" in reply.lower()


@given(texts)
@settings(max_examples=500)
def test_what_is_thought_changes_nothing(said):
    """By a template's opening tag or its own, before what is said: only what stands outside the thought is read."""
    spoken, unfinished = outside_thoughts(said)
    if "</think>" not in said and not unfinished:
        for thought in ("", "a plan", "<action>up</action>", "> up\n"):
            assert requested_action(f"{thought}</think>{said}") == requested_action(f"<think>{thought}</think>{said}")
            assert outside_thoughts(f"{thought}</think>{said}") == (spoken, False)


@given(st.text(max_size=40).filter(lambda text: not any(tag in text for tag in (*TAGS, ">"))), st.text(max_size=40))
def test_tagging_a_plain_action_does_not_change_it(action, thought):
    thought = thought.replace("<", "")
    assert {requested_action(tagged(action, thought), r) for r in ("tags", "thought")} == {requested_action(action)}
