"""gym-sokoban itself, side by side: the same boards, moves, rewards, ends and frames."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from effort import effort
from sokoban_boards import parse_room

import crbc_envs  # noqa: F401  registers the id
from anchors import INVALID
from crbc_envs.errors import RequirementError
from crbc_envs.sokoban.batch import STAY, SokobanBatch
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.gym_engine import GymGame, gym_sokoban_class
from crbc_envs.sokoban.panels import Level, SokobanPanel
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.tasks import Task, TaskPanel

STEPS = effort(500, full=2_000)
"""For each of five sizes."""

SIZES = [(6, 6, 1), (6, 6, 2), (7, 7, 2), (5, 9, 1), (8, 8, 3)]


@pytest.fixture
def gym_sokoban(monkeypatch):
    """gym-sokoban's environments at a given room; its pictures are read from disk once, not at every step."""
    try:
        environment = gym_sokoban_class()
    except RequirementError as missing:
        pytest.skip(str(missing))
    from gym_sokoban.envs import render_utils

    monkeypatch.setattr(render_utils, "imageio", SimpleNamespace(imread=cache(render_utils.imageio.imread)))

    def at(room, max_steps=1_000):
        return GymGame(room, max_steps).env

    at.environment = environment
    return at


class Rooms(TaskPanel):
    def __init__(self, rooms):
        super().__init__("train", len(rooms))
        self.rooms = rooms

    def _task(self, index):
        return Task(f"room/{index}", "", self.rooms[index], "")


def playing(rooms, max_steps):
    height, width = rooms[0].height, rooms[0].width
    env = SokobanEnv(height=height, width=width, num_boxes=len(rooms[0].targets), max_steps=max_steps)
    env.panel = Rooms(rooms)
    return env


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{} with {}".format(*size))
def test_random_play_is_the_same_to_the_last_bit(gym_sokoban, size):
    panel = SokobanPanel("train", Level.of_size(*size))
    rooms = [panel[index].content for index in range(5)]
    ours = playing(rooms, max_steps=60)
    batch = SokobanBatch(1, *size[:2])
    rng = np.random.default_rng(sum(size))
    moved = pushed = gained = won = 0
    over = True
    for t in range(STEPS):
        if over:
            index = int(rng.integers(len(rooms)))
            theirs = gym_sokoban(rooms[index], max_steps=60)
            frame, _ = ours.reset(options={"task": index})
            batch.load(rooms[index].tiles(rooms[index].start)[None])
            np.testing.assert_array_equal(frame, theirs.render("rgb_array"))
        action = int(rng.integers(5))
        reply = MOVES[action] if action != STAY else ("", INVALID, "sideways")[t % 3]
        frame, reward, terminated, truncated, info = ours.step(reply)
        their_frame, their_reward, over, told = theirs.step(0 if action == STAY else 1 + action)
        np.testing.assert_array_equal(frame, their_frame)
        assert reward == their_reward
        assert (terminated or truncated) == over
        assert terminated == info["success"] == told.get("all_boxes_on_target", False)
        rewards, solved = batch.step(np.array([action]))
        np.testing.assert_array_equal(batch.frames()[0], their_frame)
        assert (rewards[0], solved[0]) == (their_reward, terminated)
        moved += told["action.moved_player"]
        pushed += told["action.moved_box"]
        gained += reward > 0
        won += terminated
    assert moved > STEPS / 4 and pushed > STEPS / 100 and gained
    assert won or size[2] > 1


def test_a_board_that_begins_with_boxes_in_place_pays_the_same(gym_sokoban):
    room = parse_room("########\n#@$._*_#\n#_*____#\n########")
    ours, theirs = playing([room], 100), gym_sokoban(room)
    ours.reset(options={"task": 0})
    for reply, action in (("none", 0), ("none", 0), ("down", 2), ("right", 4), ("right", 4), ("up", 1), ("left", 3)):
        frame, reward, *_ = ours.step(reply)
        their_frame, their_reward, *_ = theirs.step(action)
        assert reward == their_reward
        np.testing.assert_array_equal(frame, their_frame)


def test_its_moves_that_never_push_are_not_among_ours(gym_sokoban):
    """Actions 5 to 8 only walk; 1 to 4, ours, walk wherever there is nothing to push."""
    theirs = gym_sokoban(parse_room("######\n#@$._#\n#____#\n######"))
    assert theirs.step(8)[3]["action.moved_player"] is False
    assert theirs.step(2)[3]["action.moved_player"] is True
