"""Sokoban's own panel: layouts, their splits, lengths and levels."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice

import gymnasium
import numpy as np
import pytest
from effort import effort
from sokoban_boards import generate_room, parse_room

import crbc_envs  # noqa: F401  registers the id
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.layouts import LONGEST, all_layouts
from crbc_envs.sokoban.panels import LEVELS, Level, SokobanPanel, find_level, split_of
from crbc_envs.sokoban.rooms import empty_rooms
from crbc_envs.sokoban.rules import (
    MOVES,
    TARGET,
    Room,
    State,
    board_digest,
    images,
    layout_digest,
    near_layouts,
    placed,
)
from crbc_envs.sokoban.solver import Starts, best_moves, distances, solve
from crbc_envs.tasks import SPLITS

GOLDEN_PANELS = {
    "6x6": ["51e7b9defb740fd0", "30c8036fe193cbab", "d98617d59c7eec0b"],
    "8x8-1box": ["8f350fa2535429f6", "2e13075c0e425e91", "5162e3fb65c2a103"],
    "8x8-2box": ["85e64cc68a498fae", "e9a249c75c8b6413", "667380bd144e82bd"],
    "10x10-long": ["595168f1f6eccbee", "12a103ccd4d193c5", "af8266c7b5d4d90e"],
}
"""How a panel's digest begins, by level and split: changing one silently changes every published number."""

LARGER = [name for name in LEVELS if name != "6x6"]


@pytest.fixture(scope="module")
def rooms():
    rng = np.random.default_rng(11)
    return [generate_room(rng) for _ in range(60)]


def room_of(tiles):
    floor, targets = (frozenset(np.flatnonzero(cells).tolist()) for cells in (tiles, tiles == TARGET))
    return Room(*tiles.shape, floor, targets, State(min(floor - targets), targets))


# ---- what is the same puzzle ----------------------------------------------------------------------


def redrawn(room, transform):
    """The room whose board is `transform` of the given one."""
    rows = np.array([list(line) for line in room.text(room.start).replace(" ", "").splitlines()])
    return parse_room("\n".join("".join(row) for row in transform(rows)))


@pytest.mark.parametrize(
    "transform",
    [
        *(np.rot90, lambda b: np.rot90(b, 2), lambda b: np.rot90(b, 3), np.fliplr, np.flipud, np.transpose),
        lambda b: np.transpose(np.rot90(b, 2)),
        lambda b: np.pad(b, ((2, 0), (0, 1)), constant_values="#"),
    ],
    ids=["turn", "half turn", "three turns", "left-right", "up-down", "transposed", "other diagonal", "shifted"],
)
def test_an_image_of_a_room_is_the_same_puzzle(rooms, transform):
    wide = generate_room(np.random.default_rng(3), height=5, width=7)
    two = generate_room(np.random.default_rng(4), height=7, width=8, num_boxes=2)
    for room in [*rooms, wide, two]:
        image = redrawn(room, transform)
        assert board_digest(image) == board_digest(room)
        assert layout_digest(image) == layout_digest(room)
        assert set(near_layouts(image)) & set(near_layouts(room))


def test_different_puzzles_have_different_digests(rooms):
    for room in rooms:
        after = room.move(room.start, best_moves(room, room.start, distances(room))[0])
        assert board_digest(room, after) != board_digest(room)
        assert layout_digest(replace(room, start=after)) == layout_digest(room)
        other = replace(room, targets=frozenset([min(room.floor - room.targets)]))
        # The other target may be an image of the first one; the board with its box and player then differs.
        assert layout_digest(other) != layout_digest(room) or board_digest(other) != board_digest(room)


def test_a_layout_one_wall_apart_is_near_and_itself_is_not():
    room = parse_room("######\n#@$._#\n#____#\n######")
    more = parse_room("######\n#@$._#\n#_#__#\n######")
    assert layout_digest(more) in set(near_layouts(room))
    assert layout_digest(room) in set(near_layouts(more))
    assert layout_digest(room) not in set(near_layouts(room))
    assert len(list(near_layouts(room))) == 2 * 4 - 1  # every cell inside the ring but the target


# ---- all layouts of 6x6 ---------------------------------------------------------------------------


def test_the_list_of_layouts_is_complete_and_without_repetition():
    listed = all_layouts()
    assert len(listed.tiles) == len(set(listed.digests)) == 9_117
    assert listed.digests == sorted(listed.digests)
    assert listed.lengths.sum(axis=0).tolist() == [0, 9117, 8153, 7487, 6475, 5512, 4497, 3681, 2646]
    rng = np.random.default_rng(0)
    for room in islice(empty_rooms(rng, 6, 6, 1), 300):  # drawn by another program
        if Starts(room, LONGEST).of_length:
            assert layout_digest(room) in listed.digests


def test_a_listed_layout_has_its_digest_and_the_lengths_of_the_solver():
    listed, rng = all_layouts(), np.random.default_rng(1)
    for number in rng.choice(len(listed.tiles), 300, replace=False).tolist():
        room = room_of(placed(listed.tiles[number], rng))
        assert layout_digest(room) == listed.digests[number]
        found = [length in Starts(room, LONGEST).of_length for length in range(LONGEST + 1)]
        assert found == listed.lengths[number].tolist()


def test_a_layout_is_placed_in_every_way():
    board = np.array([[1, 1, 1], [2, 0, 0]], dtype=np.uint8)
    rng = np.random.default_rng(0)
    seen = {placed(board, rng).tobytes() for _ in range(1_000)}
    assert len(images(board)) == 8
    assert len(seen) == 8 * 2 * 3  # 3 x 2 cells fit in 4 x 4 at 2 x 3 places
    assert {layout_digest(room_of(np.frombuffer(tiles, np.uint8).reshape(6, 6))) for tiles in seen} == {
        layout_digest(room_of(placed(board, rng)))
    }


# ---- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", LEVELS)
def test_the_digest_of_its_layout_decides_the_split_of_a_room(name, split):
    panel = SokobanPanel(split, LEVELS[name])
    for index in range(300 if name == "6x6" else 20):
        assert split_of(layout_digest(panel[index].content)) == split


def test_no_state_that_can_be_reached_in_a_train_room_is_a_held_out_start():
    """Played to every end, not deduced from layouts: the first train rooms, all reachable states, all images."""
    panel = SokobanPanel("train")
    reached = set()
    for index in range(150):
        room = panel[index].content
        seen, queue = {room.start}, deque([room.start])
        while queue:
            state = queue.popleft()
            after = {room.move(state, move) for move in MOVES} - seen
            seen |= after
            queue.extend(after)
        reached |= {board_digest(room, state) for state in seen}
    assert len(reached) > 3_000
    for split in ("validation", "test"):
        held_out = SokobanPanel(split)
        assert not reached & {held_out[index].digest for index in range(len(held_out))}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_no_layout_comes_twice_in_a_held_out_split(split):
    panel = SokobanPanel(split)
    assert len({layout_digest(panel[index].content) for index in range(len(panel))}) == len(panel) == 2_000


@pytest.mark.full
@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("name", LARGER)
def test_no_layout_comes_twice_in_a_larger_level_either(name, split):
    level = LEVELS[name]
    panel = SokobanPanel(split, level)
    assert len(panel) == 2_000
    # Drawing all rooms of the largest level takes longer than all that other tests of Sokoban do.
    rooms = [panel[index].content for index in range(effort(500, 2_000) if name == "10x10-long" else 2_000)]
    assert len({layout_digest(room) for room in rooms}) == len(rooms)
    assert [distances(room)[room.start] for room in rooms] == [level.length(index) for index in range(len(rooms))]


# ---- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_the_lengths_one_to_eight_come_equally_often(split):
    panel = SokobanPanel(split)
    assert [len(solve(panel[index].content)) for index in range(160)] == [*range(1, 9)] * 20


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", LARGER)
def test_a_level_has_rooms_of_each_of_its_lengths(name, split):
    level = LEVELS[name]
    panel = SokobanPanel(split, level)
    for index in range(0, 2 * (level.longest - level.shortest + 1), 5):
        room = panel[index].content
        assert (room.height, room.width, len(room.targets)) == (level.height, level.width, level.num_boxes)
        assert not room.start.boxes & room.targets
        assert level.shortest <= distances(room)[room.start] == level.length(index) <= level.longest


def test_with_more_boxes_the_lengths_begin_at_the_number_of_boxes():
    panel = SokobanPanel("train", Level.of_size(7, 7, 2))
    assert [len(solve(panel[index].content)) for index in range(16)] == [*range(2, 10)] * 2


def test_a_size_without_rooms_of_a_length_has_the_nearest_there_is():
    panel = SokobanPanel("train", Level.of_size(3, 7))  # a corridor of up to five cells
    assert {len(solve(panel[index].content)) for index in range(8)} == {1, 2}


def test_a_split_that_no_room_of_that_size_falls_into_is_refused_and_not_searched_for_ever(monkeypatch):
    import crbc_envs.sokoban.rooms as module

    tries, grow = iter(range(2_000)), module._grow_floor

    def counted(*args):
        assert next(tries, None) is not None, "2,000 floors were grown and none of this size is in the split"
        return grow(*args)

    monkeypatch.setattr(module, "_grow_floor", counted)
    refused = []
    for split in SPLITS:
        tries = iter(range(2_000))
        try:
            SokobanPanel(split, Level.of_size(3, 6))[0]
        except ValueError as error:
            refused.append(str(error))
    assert refused
    assert all("3x6 rooms with 1 boxes are too few to fill the " in told for told in refused)


# ---- a task is a function of (split, index) -------------------------------------------------------


@pytest.mark.parametrize("name", LEVELS)
def test_a_panel_is_the_frozen_one(name):
    count = 16 if name == "10x10-long" else 64  # its rooms take long to draw
    assert [SokobanPanel(split, LEVELS[name]).digest(count)[:16] for split in SPLITS] == GOLDEN_PANELS[name]


def test_a_panel_is_the_same_in_other_processes_whatever_the_hash_seed(run_python):
    code = """
from crbc_envs.sokoban.panels import LEVELS
from crbc_envs.sokoban.panels import SokobanPanel
for name in ("6x6", "8x8-2box"):
    print(*(SokobanPanel(split, LEVELS[name]).digest(30) for split in ("train", "validation", "test")))
"""
    here = [SokobanPanel(split, LEVELS[name]).digest(30) for name in ("6x6", "8x8-2box") for split in SPLITS]
    assert run_python(code, "random").split() == here


def test_a_task_does_not_depend_on_which_were_asked_before():
    from crbc_envs.sokoban.panels import _panel_task

    forwards = [SokobanPanel("train")[i].digest for i in range(10)]
    _panel_task.cache_clear()
    assert [SokobanPanel("train")[i].digest for i in reversed(range(10))] == forwards[::-1]


def test_a_panel_names_its_tasks_and_its_limits():
    panel = SokobanPanel("test")
    assert len(panel) == 2000
    assert panel[12].id == "sokoban-v3/test/12"
    assert SokobanPanel("test", LEVELS["8x8-2box"])[12].id == "sokoban-v3/8x8-2box/test/12"
    assert SokobanPanel("test", Level.of_size(7, 7))[12].id == "sokoban-v3/7x7/test/12"
    assert panel[np.int64(12)] == panel[12]
    assert panel[12].digest == board_digest(panel[12].content)
    for index in (-1, 2000):
        with pytest.raises(IndexError, match=f"task {index} is not in the test panel of 2000 tasks"):
            panel[index]
    with pytest.raises(ValueError, match="split must be one of train, validation, test; got 'dev'"):
        SokobanPanel("dev")


# ---- levels ---------------------------------------------------------------------------------------


def test_the_paper_s_size_is_the_default_level():
    assert find_level(None) == find_level("6x6") == find_level(None, 6, 6, 1) == LEVELS["6x6"]
    assert find_level("6x6", height=6) == LEVELS["6x6"]
    assert find_level(None, 8, 8, 2).name == "8x8x2"
    assert SokobanEnv().panel[5] == SokobanEnv(level="6x6").panel[5] == SokobanEnv(height=6).panel[5]


@pytest.mark.parametrize("name", LEVELS)
def test_the_environment_has_the_steps_that_its_level_needs(name):
    level = LEVELS[name]
    env = gymnasium.make("CRBC-Sokoban-v0", level=name, observation="text")
    assert env.unwrapped.max_steps == level.max_steps > level.longest
    env.reset(seed=0, options={"task": level.longest - level.shortest})
    info = {}
    for move in solve(env.unwrapped.room):
        *_, info = env.step(move)
    assert (info["success"], info["step"]) == (True, level.longest)
    assert SokobanEnv(level=name, max_steps=7).max_steps == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "9x9"}, "level must be one of 6x6, 8x8-1box, 8x8-2box, 10x10-long; got '9x9'"),
        ({"level": "8x8-2box", "height": 6}, "level '8x8-2box' has height 8, got 6: leave out one of the two"),
        ({"level": "8x8-2box", "num_boxes": 1}, "level '8x8-2box' has num_boxes 2, got 1"),
    ],
)
def test_a_level_that_is_none_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SokobanEnv(**options)


@pytest.mark.parametrize("name", LARGER)
def test_the_expert_solves_a_large_room_in_as_few_moves_as_can_be(name):
    level = LEVELS[name]
    env = SokobanEnv(level=name, observation="text")
    for index in range(3):
        observation, info = env.reset(options={"task": index})
        expert = env.expert(np.random.default_rng(0))
        over = False
        while not over:
            observation, _, over, cut, info = env.step(expert(observation, info))
            assert not cut
        assert info["step"] == level.length(index)


def test_the_expert_searches_where_there_are_too_many_states_to_list(monkeypatch):
    import crbc_envs.sokoban.expert as module

    monkeypatch.setattr(module, "distances", lambda room: distances(room, max_states=20))
    env = SokobanEnv(level="8x8-2box", observation="text")
    observation, info = env.reset(options={"task": 7})
    assert env.state not in distances(env.room, max_states=20)
    expert = env.expert(np.random.default_rng(0))
    over = False
    while not over:
        observation, _, over, _, info = env.step(expert(observation, info))
    assert (info["success"], info["step"]) == (True, LEVELS["8x8-2box"].length(7))
    monkeypatch.setattr(module, "MAX_EXPANDED", 1)
    observation, info = env.reset(options={"task": 7})
    assert env.accepts(env.expert(np.random.default_rng(0))(observation, info))  # hasty, and still a move
