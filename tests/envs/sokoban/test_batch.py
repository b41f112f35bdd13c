"""Sokoban played many boards at a time: the same rules, frames and answers as one board at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crbc_envs  # noqa: F401  registers the id
from anchors import INVALID
from crbc_envs.sokoban.batch import STAY, SokobanBatch, SokobanMembers
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.panels import Level, SokobanPanel
from crbc_envs.sokoban.render import BatchRenderer, render
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.vector.members import LocalMembers, make_member, make_members

SIZES = [(6, 6, 1), (7, 7, 2), (5, 8, 1), (6, 9, 2), (8, 10, 3)]

REPLIES = [*MOVES, *MOVES, "  UP ", "Down", "", "jump", "up down", INVALID, "\ud800", "<action>left</action>"]
REPLIES += [f"<think>{thought}</think><action>left</action>" for thought in ("a", "because " * 100)]


def begun(count, height, width, num_boxes):
    """A batch on the first rooms of a panel, and the rooms."""
    panel = SokobanPanel("train", Level.of_size(height, width, num_boxes))
    rooms = [panel[i].content for i in range(count)]
    batch = SokobanBatch(count, height, width)
    batch.load(np.stack([room.tiles(room.start) for room in rooms]))
    return batch, rooms


# ---- the engine -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_every_board_moves_as_a_room_does(size):
    batch, rooms = begun(12, *size)
    states = [room.start for room in rooms]
    rng = np.random.default_rng(1)
    pushes = 0
    for _ in range(200):
        actions = rng.integers(5, size=12)
        rewards, solved = batch.step(actions)
        for i, (room, before, action) in enumerate(zip(rooms, states, actions, strict=True)):
            states[i] = before if action == STAY else room.move(before, MOVES[action])
            gained = len(states[i].boxes & room.targets) - len(before.boxes & room.targets)
            assert solved[i] == room.solved(states[i])
            assert rewards[i] == -0.1 + gained + (10.0 if solved[i] else 0.0)
            np.testing.assert_array_equal(batch.tiles[i], room.tiles(states[i]))
            pushes += before.boxes != states[i].boxes
    assert pushes > 10


def test_boards_may_be_named_in_any_order():
    named, whole = begun(6, 6, 6, 1)[0], begun(6, 6, 6, 1)[0]
    rng = np.random.default_rng(3)
    for _ in range(40):
        order, actions = rng.permutation(6), rng.integers(5, size=6)
        rewards, solved = named.step(actions[order], order)
        expected = whole.step(actions)
        np.testing.assert_array_equal(named.tiles, whole.tiles)
        np.testing.assert_array_equal(rewards, expected[0][order])
        np.testing.assert_array_equal(solved, expected[1][order])
        np.testing.assert_array_equal(named.frames(boards=order), whole.frames()[order])


def test_boards_loaded_later_leave_the_others_alone():
    batch, rooms = begun(4, 6, 6, 1)
    batch.step(np.zeros(4, dtype=int))
    before = batch.tiles.copy()
    start = rooms[0].tiles(rooms[0].start)
    batch.load(np.stack([start, start]), np.array([1, 3]))
    np.testing.assert_array_equal(batch.tiles[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(batch.tiles[[1, 3]], [start, start])


# ---- frames ---------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**31 - 1))
def test_many_frames_are_the_frames_of_one_board_each(count, height, width, seed):
    tiles = np.random.default_rng(seed).integers(7, size=(count, height, width), dtype=np.uint8)
    out = np.full((count, 16 * height, 16 * width, 3), 77, dtype=np.uint8)
    renderer = BatchRenderer(width)
    assert renderer.draw(tiles, out) is out
    np.testing.assert_array_equal(out, np.stack([render(board) for board in tiles]))
    np.testing.assert_array_equal(renderer.draw(tiles), out)


@pytest.mark.parametrize("width", [6, 9])
def test_pictures_are_forgotten_when_there_are_too_many(monkeypatch, width):
    monkeypatch.setattr(BatchRenderer, "MAX_CACHED", 40)
    renderer, rng = BatchRenderer(width), np.random.default_rng(0)
    for _ in range(20):
        tiles = rng.integers(7, size=(4, 5, width), dtype=np.uint8)
        np.testing.assert_array_equal(renderer.draw(tiles), np.stack([render(board) for board in tiles]))
        assert len(renderer._pictures) <= 40 + tiles.size // renderer.span


def test_no_boards_have_no_frames():
    assert BatchRenderer(6).draw(np.empty((0, 5, 6), dtype=np.uint8)).shape == (0, 80, 96, 3)


@pytest.mark.parametrize(
    "out",
    [np.empty((2, 96, 96, 3)), np.empty((1, 96, 96, 3), np.uint8), np.empty((2, 96, 96, 6), np.uint8)[..., ::2]],
    ids=["floats", "too few", "not contiguous"],
)
def test_an_array_frames_do_not_fit_is_refused(out):
    with pytest.raises(ValueError, match="out must be a C-contiguous uint8 array of shape"):
        BatchRenderer(6).draw(np.zeros((2, 6, 6), dtype=np.uint8), out)


# ---- members --------------------------------------------------------------------------------------


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, column in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (column.dtype, column.shape), name
        assert ours[name].tolist() == column.tolist(), name


def assert_same_outcome(ours, theirs):
    assert len(ours.observations) == len(theirs.observations)
    for one, other in zip(ours.observations, theirs.observations, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in ("rewards", "terminated", "truncated"):
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
    assert_same(ours.infos, theirs.infos)
    assert list(ours.infos) == list(theirs.infos)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"observation": "text", "replies": "tags"},
        {"pixels": 40, "max_steps": 4},
        {"height": 7, "width": 8, "num_boxes": 2, "observation": "text", "max_steps": 40},
        {"panel": "paper", "split": "test", "render_mode": "ansi"},
        {"render_mode": "rgb_array", "pixels": 64},
    ],
    ids=["rgb", "tags", "small", "two boxes", "paper", "rendered"],
)
def test_members_answer_as_so_many_environments_would(options):
    k = 9
    ours = make_members("CRBC-Sokoban-v0", options, k)
    theirs = LocalMembers([make_member("CRBC-Sokoban-v0", options) for _ in range(k)])
    assert isinstance(ours, SokobanMembers)
    rng = np.random.default_rng(5)
    everyone = list(range(k))
    tasks = rng.integers(6, size=k).tolist()
    assert_same_outcome(ours.reset(everyone, tasks, everyone), theirs.reset(everyone, tasks, everyone))
    live, ends = set(everyone), 0
    for t in range(120):
        if t % 20 == 19 or not live:
            again = [m for m in everyone if m not in live or rng.random() < 0.3] or [0]
            tasks = rng.integers(6, size=len(again)).tolist()
            assert_same_outcome(ours.reset(again, tasks, again), theirs.reset(again, tasks, again))
            live |= set(again)
        members = [m for m in sorted(live) if rng.random() < 0.8] or [min(live)]
        replies = [REPLIES[i] for i in rng.integers(len(REPLIES), size=len(members))]
        one, other = ours.step(members, replies), theirs.step(members, replies)
        assert_same_outcome(one, other)
        over = {m for m, done in zip(members, one.terminated | one.truncated, strict=True) if done}
        live -= over
        ends += len(over)
        for shown, expected in zip(ours.render(), theirs.render(), strict=True):
            np.testing.assert_array_equal(shown, expected)
    assert ends > 10
    ours.close()


def test_memories_are_bounded_and_change_no_answer(monkeypatch):
    import crbc_envs.sokoban.batch as module

    monkeypatch.setattr(module, "MAX_CACHED", 5)
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", 100_000)
    test_members_answer_as_so_many_environments_would({"pixels": 100})


def test_frames_handed_out_are_not_written_on_again():
    members = make_members("CRBC-Sokoban-v0", {}, 2)
    shown = [members.reset([0, 1], [3, 3], [0, 0]).observations]
    shown += [members.step([0, 1], [move, move]).observations for move in ("left", "right", "up", "down")]
    copies = [frames.copy() for frames in shown]
    members.step([0, 1], ["up", "left"])
    for frames, copy in zip(shown, copies, strict=True):
        np.testing.assert_array_equal(frames, copy)


def test_an_environment_of_ones_own_is_played_one_by_one():
    class Gentle(SokobanEnv):
        def _execute(self, action):
            return super()._execute(action) + 1.0

    assert Gentle().batch(3) is None
    assert isinstance(SokobanEnv().batch(3), SokobanMembers)
