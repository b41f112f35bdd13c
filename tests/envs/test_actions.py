"""Exec(y): every string has an answer, and none is ever evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbc_envs.actions import MAX_ACTION_LENGTH, requested_action

TAGS = ("<think>", "</think>", "<action>", "</action>")
replies = st.lists(
    st.sampled_from([*TAGS, "<action", "up", " ", "\n", "\x00", "go to desk 1"]) | st.text(max_size=5)
).map("".join)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<think>push it</think><action>up</action>", "up"),
        ("<think></think> so: <action>\n Go  TO\tdesk 1 </action> done", "go to desk 1"),
        ("<action>up</action><think>late</think>", "up"),
        ("<think>a</think><action>up</action><action>down</action>", "up"),
        ("<think>a</think><action>up</action> or down</action>", "up"),
        ("<think><think>a</think></think><action>left</action>", "left"),
        ("<think>a</think><action><action>up</action></action>", "<action>up"),
        ("<think>a</think><action>ein schönes kleid \U0001f457</action>", "ein schönes kleid \U0001f457"),
        ("<think>a</think><action>ÉCLAIR</action>", "éclair"),
        ("<think>a</think><action>\ud800</action>", "\ud800"),
    ],
)
@pytest.mark.parametrize("require_tags", [False, True])
def test_a_tagged_reply_asks_for_its_first_action(reply, action, require_tags):
    assert requested_action(reply, require_tags) == action


@pytest.mark.parametrize(
    "reply",
    [
        "<action>up</action>",
        "<think>a<action>up</action>",
        "a</think><action>up</action>",
        "<think>a</think>",
        "<think>a</think><action>up",
        "<think>a</think>up</action>",
        "<think>a</think></action>up<action>",
        "<think>a</think><action></action>",
        "<think>a</think><action> \n\t </action>",
        "<think>up",
        "up</action>",
        "",
        "   ",
        "\u00a0\u2003",
        "x" * (MAX_ACTION_LENGTH + 1),
        "<think>a</think><action>" + "x" * (MAX_ACTION_LENGTH + 1) + "</action>",
        "\x00" * 1_000_000,
        "<think>" * 200_000,
        "<action>" * 200_000,
        "<think></think>" + "<action>" * 200_000 + "</action>",
    ],
    ids=lambda reply: repr(reply[:40]),
)
@pytest.mark.parametrize("require_tags", [False, True])
def test_a_malformed_reply_asks_for_nothing(reply, require_tags):
    assert requested_action(reply, require_tags) is None


LONGEST = "x" * MAX_ACTION_LENGTH
PLAIN = {" Go  To\nDesk 1 ": "go to desk 1", "\x00": "\x00", "<b>up</b>": "<b>up</b>", "<Action>": "<action>"}


@pytest.mark.parametrize(("reply", "action"), [*PLAIN.items(), (LONGEST, LONGEST)], ids=lambda text: repr(text[:20]))
def test_plain_text_is_the_action_unless_tags_are_required(reply, action):
    assert requested_action(reply) == action
    assert requested_action(reply, require_tags=True) is None


@given(replies | st.text(), st.booleans())
@settings(max_examples=300)
def test_every_string_has_an_answer_in_normal_form(reply, require_tags):
    action = requested_action(reply, require_tags)
    if action is not None:
        assert action == " ".join(action.split())
        assert action == action.lower() != ""
        assert not require_tags or all(tag in reply for tag in TAGS)


@given(replies | st.text())
@settings(max_examples=300)
def test_requiring_tags_only_ever_refuses_more(reply):
    strict, lenient = requested_action(reply, require_tags=True), requested_action(reply)
    assert strict in (None, lenient)
    if all(tag in reply for tag in TAGS):
        assert strict == lenient


@given(st.text(max_size=40).filter(lambda text: not any(tag in text for tag in TAGS)), st.text(max_size=40))
def test_tagging_a_plain_action_does_not_change_it(action, thought):
    thought = thought.replace("<", "")
    assert requested_action(f"<think>{thought}</think><action>{action}</action>") == requested_action(action)
