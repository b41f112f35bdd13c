"""Walks with every event of a game written down by hand, played on one board and on many at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sokoban_boards import on_board

from anchors import INVALID, anchor_key
from crbc_envs.sokoban.rules import SYMBOLS
from crbc_envs.vector.members import LocalMembers

BOARD = "########\n#@$.___#\n#__$.__#\n#______#\n########"

WALK = [
    ("right", 0.9),  # the upper box onto its target
    ("right", -1.1),  # and off it again
    ("up", -0.1),  # a wall
    ("sideways", -0.1),  # malformed
    ("right", -0.1),  # a push over plain floor
    ("down", -0.1),  # the player onto a target
    ("right", -0.1),
    ("right", -0.1),
    ("up", -0.1),
    ("left", -0.1),
    ("left", 0.9),  # the upper box home from the other side
    ("down", -0.1),
    ("down", -0.1),
    ("left", -0.1),
    ("left", -0.1),
    ("up", -0.1),
    ("right", 10.9),  # the lower box home, which is all
]
"""Moves and rewards by the published rules: -0.1 a step, 1 for a box on, -1 for one off, 10 for the last."""

STUCK = [
    ("down", -0.1),
    ("right", -0.1),
    ("right", 0.9),  # the lower box onto its target
    ("right", -1.1),  # and off
    ("right", -0.1),  # to the wall
    ("right", -0.1),  # where it stays
    ("<think>x</think><action>left</action>", -0.1),
    ("left", -0.1),  # away from it: nothing is pulled
]
AFTER_STUCK = "########\n#_$.___#\n#__@._$#\n#______#\n########"

PAIR = [("right", -0.1), ("right", -0.1), ("left", -0.1)]
"""A box against a box moves neither."""
PAIRED = "#######\n#@$$..#\n#_____#\n#######"

HOME = [("?", 0.9), ("?", -0.1), ("down", -0.1)]
"""A box that begins in place is paid for at the first step, whichever it is."""
HOMELY = "######\n#@_*_#\n#_$._#\n######"


WALKS = pytest.mark.parametrize(
    ("board", "walk"),
    [(BOARD, WALK), (BOARD, STUCK), (PAIRED, PAIR), (HOMELY, HOME)],
    ids=["won", "stuck", "pair", "home"],
)
MANY = pytest.mark.parametrize("many", [False, True], ids=["one by one", "batch"])


def played(board, walk, many, **options):
    """What one environment answers to the walk, or the middle one of three members, which alone moves."""
    env = on_board(board, **options)
    members = env.batch(3) if many else LocalMembers([on_board(board, **options) for _ in range(3)])
    first = members.reset([0, 1, 2], [0, 0, 0], [0, 0, 0])
    members.step([2], ["down"])
    steps = [members.step([1], [move]) for move, _ in walk]
    members.step([0], ["down"])
    return first, steps


def shown(outcome, m=0):
    return outcome.infos["label"][m].replace(" ", "")


def key(board):
    tiles = np.array([[SYMBOLS.index(cell) for cell in row] for row in board.split()], dtype=np.uint8)
    return anchor_key(tiles)


@MANY
@pytest.mark.parametrize("observation", ["rgb", "text"])
@WALKS
def test_every_event_pays_what_the_published_rules_say(board, walk, observation, many):
    first, steps = played(board, walk, many, max_steps=50, observation=observation)
    assert first.rewards.tolist() == [0.0] * 3
    assert shown(first, 1) == board
    assert [float(step.rewards[0]) for step in steps] == pytest.approx([reward for _, reward in walk], abs=1e-12)
    ends = [bool(step.terminated[0]) for step in steps]
    assert ends == [reward > 5 for _, reward in walk]
    assert [bool(step.infos["success"][0]) for step in steps] == ends
    assert [step.infos["score"][0] for step in steps] == [float(end) for end in ends]
    assert not any(step.truncated[0] for step in steps)
    assert [step.infos["step"][0] for step in steps] == list(range(1, len(walk) + 1))
    for step in steps:
        assert step.infos["anchor"][0] == key(shown(step))


@MANY
def test_walls_and_malformed_replies_leave_the_board_and_its_anchor(many):
    first, steps = played(BOARD, WALK, many, max_steps=50)
    anchors = [first.infos["anchor"][1], *(step.infos["anchor"][0] for step in steps)]
    still = [i for i, (before, after) in enumerate(pairwise(anchors)) if before == after]
    assert [WALK[i][0] for i in still] == ["up", "sideways"]
    assert [step.infos["action"][0] for step in steps][2:5] == ["up", INVALID, "right"]
    assert [bool(step.infos["valid"][0]) for step in steps] == [move != "sideways" for move, _ in WALK]


@MANY
def test_boxes_stay_where_nothing_moves_them(many):
    assert shown(played(BOARD, STUCK, many, max_steps=50)[1][-1]) == AFTER_STUCK
    assert shown(played(PAIRED, PAIR, many)[1][-1]) == PAIRED


@MANY
@pytest.mark.parametrize("limit", [len(WALK) - 1, len(WALK)])
def test_a_walk_is_cut_at_the_limit_unless_it_just_won(many, limit):
    _, steps = played(BOARD, WALK[:limit], many, max_steps=limit)
    assert [bool(step.truncated[0]) for step in steps] == [False] * (limit - 1) + [limit < len(WALK)]
    assert [bool(step.terminated[0]) for step in steps] == [False] * (limit - 1) + [limit == len(WALK)]


# ---- boards of many shapes ------------------------------------------------------------------------


SHAPES = [(4, 9), (6, 6), (9, 4), (3, 12)]
"""All of 36 cells, so that boards of one shape have the bytes of boards of another."""


def walled(height, width):
    """A board of this shape: the player, a box and its target in a row or a column, the rest wall."""
    tiles = np.zeros((height, width), dtype=np.uint8)
    if width > 4:
        tiles[1, 1:4] = 5, 4, 2
    else:
        tiles[1:4, 1] = 5, 4, 2
    return "\n".join("".join(SYMBOLS[tile] for tile in row) for row in tiles)


@pytest.mark.parametrize("pixels", [None, 48])
@MANY
def test_frames_have_the_shape_of_their_own_board(many, pixels):
    for height, width in SHAPES:
        env = on_board(walled(height, width), pixels=pixels)
        shape = env.observation_space.shape
        first, steps = played(walled(height, width), [("up", 0), ("left", 0)], many, pixels=pixels)
        for outcome in (first, *steps):
            assert np.shape(outcome.observations)[1:] == shape
        if pixels is None:
            assert shape == (16 * height, 16 * width, 3)
        else:
            assert shape[0] * width == pytest.approx(shape[1] * height, rel=0.1)
            assert shape[0] * shape[1] == pytest.approx(pixels**2, rel=0.1)
