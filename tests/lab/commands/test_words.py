"""What a typed line means in `crbc play`."""

from __future__ import annotations

import pytest

from crbc_lab.commands.words import Meaning, meaning

MOVES = ("up", "down", "left", "right")
ROOM = ("go to bed 1", "go to desk 1", "go to desk 2", "heat egg 1 with microwave 1", "help", "look")
HOME = ("search[<your query>]", "click[search]")
RESULTS = ("click[back to search]", "click[next >]", "click[b0gen1]", "click[b0gen2]")
SEARCH = [("search[", "]")]


def read(line, actions, forms=()):
    def accepts(reply):
        searched = reply.startswith("search[") and reply.endswith("]") and len(reply) > len("search[]")
        return reply.lower() in actions or (bool(forms) and searched)

    return meaning(line, actions, accepts, forms)


@pytest.mark.parametrize(
    ("line", "actions", "reply"),
    [
        ("u", MOVES, "up"),
        ("Right", MOVES, "Right"),
        ("go to b", ROOM, "go to bed 1"),
        ("desk 2", ROOM, "go to desk 2"),
        ("back", RESULTS, "click[back to search]"),
        ("B0GEN2", RESULTS, "click[b0gen2]"),
    ],
)
def test_an_action_may_be_cut_where_it_is_clear(line, actions, reply):
    assert read(line, actions) == Meaning(reply=reply)


@pytest.mark.parametrize(
    ("line", "actions", "choices"),
    [
        ("go to d", ROOM, ("go to desk 1", "go to desk 2")),
        ("he", ROOM, ("help", "heat egg 1 with microwave 1")),
        ("ne", RESULTS, ("next", "click[next >]")),
        ("click[b0", RESULTS, ("click[b0gen1]", "click[b0gen2]")),
    ],
)
def test_what_may_be_several_things_is_none_of_them(line, actions, choices):
    assert read(line, actions) == Meaning(choices=choices)


def test_commands_cost_no_step_even_where_an_action_has_their_name():
    assert read("help", ROOM) == read("?", ROOM) == read("HELP", ROOM) == Meaning(command="help")
    assert read("q", MOVES) == Meaning(command="quit")
    assert read("n", MOVES) == Meaning(command="next")


def test_a_command_that_is_also_a_button_names_the_button():
    assert read("next", RESULTS) == Meaning(command="next", choices=("click[next >]",))
    assert read("next", HOME) == Meaning(command="next")


@pytest.mark.parametrize("line", ["search[red shoes]", "search red shoes", "search[red shoes", "Search Red  shoes"])
@pytest.mark.parametrize("actions", [HOME, RESULTS])
def test_words_of_ones_own_are_put_into_their_brackets(line, actions):
    assert read(line, actions, SEARCH) == Meaning(reply="search[red shoes]")


@pytest.mark.parametrize("line", ["s", "sea", "search", "search["])
def test_an_action_without_its_words_is_not_sent(line):
    assert read(line, HOME, SEARCH) == Meaning(choices=("search[<your query>]",))


@pytest.mark.parametrize(
    ("line", "actions", "near"),
    [
        ("rigth", MOVES, "right"),
        ("bogus", MOVES, ""),
        ("go to bde 1", ROOM, "go to bed 1"),
        ("click[b0gen3]", RESULTS, "click[b0gen2]"),
        ("<action>up", MOVES, ""),
    ],
)
def test_any_other_line_is_no_reply(line, actions, near):
    assert read(line, actions) == Meaning(near=near)
