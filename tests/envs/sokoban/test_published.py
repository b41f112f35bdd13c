"""Published boards, reproduced: the generators, and the panel of the paper's seeds."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import numpy as np
import pytest
from sokoban_boards import parse_room

import crbc_envs  # noqa: F401  registers the id
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.gym_engine import arrays
from crbc_envs.sokoban.panels import FIRST_SEED, PaperPanel, SokobanPanel, make_panel
from crbc_envs.sokoban.published import paper_room
from crbc_envs.sokoban.rules import board_digest
from crbc_envs.sokoban.solver import distances
from crbc_envs.tasks import SPLITS

GOLDEN_BOARDS = {
    100: "9eddb280534f17bb3481b5690ffcba78f1ca9df05cdac07478dc748a20d8682c",
    2_000: "c7bd0136fe38c31a623665339f42b6ed4197d13f7c96fdf01a6a3bad2fea3b7c",
}
"""sha256 of verl-agent's own boards of the first seeds: all that never moves, then all starts, uint8."""

GOLDEN_LENGTHS = [159, 486, 229, 307, 349, 194, 116, 97, 41, 16, 3, 3]
"""How many of the boards of seeds 0 to 1999 take 1, 2, ... 12 moves."""

GOLDEN_TWO_BOXES = "28d3f1c6d890635957c8dde19e7ee2bba500d31e67f46e57622a8ffa94d41726"
"""The same of RAGEN's boards of seeds 0 to 39 at 7x6 with two boxes, drawing on where they fail."""

NO_BOARD_OF_THEIR_OWN = (3248, 3701, 7141)
"""Seeds whose first four boards let no box be pulled."""


@pytest.fixture(scope="module")
def boards():
    return [paper_room(seed) for seed in range(2_000)]


def digest(rooms):
    fixed, starts = zip(*map(arrays, rooms), strict=True)
    return hashlib.sha256(np.stack(fixed).tobytes() + np.stack(starts).tobytes()).hexdigest()


# ---- the generators -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", GOLDEN_BOARDS)
def test_the_boards_are_those_the_paper_s_code_family_plays(boards, count):
    assert digest(boards[:count]) == GOLDEN_BOARDS[count]


def test_a_board_is_a_room_with_its_boxes_off_the_targets():
    for height, width, boxes in ((6, 6, 1), (5, 8, 1), (7, 7, 2), (3, 7, 1)):
        for seed in range(10):
            board = paper_room(seed, height, width, boxes)
            assert parse_room(board.text(board.start)) == board
            assert len(board.targets) == boxes
            assert not board.start.boxes & board.targets


def test_boards_with_two_boxes_are_those_of_the_original():
    assert digest(paper_room(seed, 7, 6, 2) for seed in range(40)) == GOLDEN_TWO_BOXES


def test_global_streams_are_neither_read_nor_moved():
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = paper_room(17)
    states = random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    assert paper_room(17) == before
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == states  # noqa: NPY002


def test_a_board_is_the_same_in_other_processes_even_where_verl_agent_s_is_not(run_python):
    code = f"""
from crbc_envs.sokoban.published import paper_room
for seed in (0, *{NO_BOARD_OF_THEIR_OWN}):
    room = paper_room(seed)
    print(room.text(room.start).replace(" ", ""))
"""
    expected = [paper_room(seed) for seed in (0, *NO_BOARD_OF_THEIR_OWN)]
    assert run_python(code, "1") == "\n".join(r.text(r.start).replace(" ", "") for r in expected)


def test_a_seed_whose_first_tries_fail_goes_on_to_a_board(monkeypatch):
    import crbc_envs.sokoban.published as module

    searches, search = [], module._search_backwards
    monkeypatch.setattr(module, "_search_backwards", lambda *a: searches.append(a) or search(*a))
    for seed in NO_BOARD_OF_THEIR_OWN:
        searches.clear()
        room = paper_room(seed)
        assert len(searches) > 4, "verl-agent gives up a seed after four boards"
        assert distances(room)[room.start] >= 1


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((6, 6, 0), "at least one box, got num_boxes=0"),
        ((4, 4, 3), "a 4x4 room is too small for 3 boxes"),
        ((0, 0, 1), "a 0x0 room is too small for 1 boxes"),
        ((2, 9, 1), "a 2x9 room is too small for 1 boxes"),
        ((4, 4, 2), "no 4x4 room with 2 boxes in 1000 tries"),
    ],
)
def test_a_size_without_a_board_is_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        paper_room(0, *shape)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_the_original_could_not_have_is_refused(seed):
    with pytest.raises(ValueError, match="[Ss]eed must be between 0 and 2\\*\\*32 - 1"):
        paper_room(seed)


def test_a_search_too_shallow_to_pull_finds_no_board():
    with pytest.raises(ValueError, match="no 6x6 room"):
        paper_room(0, search_depth=1)


# ---- the panel ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "size"), [("train", 65_535), ("validation", 2_000), ("test", 2_000)])
def test_the_paper_s_panel_is_seed_after_seed(split, size):
    panel = PaperPanel(split)
    assert len(panel) == size
    for index in (0, 12, size - 1):
        task = panel[index]
        assert task.id == f"sokoban-paper/{split}/{index}"
        assert task.content == paper_room(FIRST_SEED[split] + index)
        assert task.digest == board_digest(task.content)
    assert panel[np.int64(12)] == panel[12]
    with pytest.raises(IndexError, match=f"task {size} is not in the {split} panel"):
        panel[size]


def test_splits_share_no_seed():
    seeds = [range(FIRST_SEED[split], FIRST_SEED[split] + len(PaperPanel(split))) for split in SPLITS]
    assert seeds[0] == range(2**16 - 1)
    assert seeds[1].start == 2**16
    assert len({seed for span in seeds for seed in span}) == sum(map(len, seeds))


def test_the_paper_s_validation_boards_are_partly_its_training_boards(boards):
    trained = {*boards, *(paper_room(seed) for seed in range(2_000, 4_000))}
    validation = PaperPanel("validation")
    shared = np.mean([validation[index].content in trained for index in range(500)])
    assert 0.3 < shared < 0.45


def solution_lengths(panel, count):
    """How many of the first tasks have a shortest solution of each length."""
    lengths = Counter(distances(room)[room.start] for room in (panel[index].content for index in range(count)))
    return dict(sorted(lengths.items()))


def test_solution_lengths_tell_how_a_panel_is_spread():
    assert solution_lengths(PaperPanel("train"), 2_000) == dict(enumerate(GOLDEN_LENGTHS, start=1))
    v3 = solution_lengths(make_panel("v3", "train"), 300)
    assert list(v3) == sorted(v3)
    assert sum(v3.values()) == 300
    assert set(v3) <= set(range(1, 13))
    share = [sum(n for moves, n in enumerate(GOLDEN_LENGTHS, start=1) if moves > 6) / 2_000]
    share.append(sum(n for moves, n in v3.items() if moves > 6) / 300)
    assert share[0] < share[1], "the suite's panel has more of the long ones"


def test_the_environment_plays_either_panel():
    env = SokobanEnv(panel="paper")
    _, info = env.reset(options={"task": 12})
    assert (info["task_id"], info["data"]) == ("sokoban-paper/train/12", "generated")
    assert env.room == paper_room(12)
    assert SokobanEnv().panel[3] == SokobanEnv(panel="v3").panel[3] == SokobanPanel("train")[3]
    with pytest.raises(ValueError, match="panel must be one of v3, paper; got 'Paper'"):
        SokobanEnv(panel="Paper")
