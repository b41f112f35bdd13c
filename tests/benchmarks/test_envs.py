"""The environments' benchmark runs and compares with what is there; how fast is never asserted."""

from __future__ import annotations

import pytest

from benchmarks import envs, sokoban, sokoban_groups

ORIGINAL = """
import random
import numpy as np

def generate_room(dim, num_steps, num_boxes, search_depth=None):
    if random.random() < 0.5:
        raise RuntimeWarning("a board that fails")
    return np.full(dim, num_steps), np.full(dim, np.random.randint(9)), "and more"
"""


@pytest.fixture
def original(tmp_path):
    """A stand-in for a published generator: half of its boards fail."""
    path = tmp_path / "room_utils.py"
    path.write_text(ORIGINAL, encoding="utf-8")
    return path


def test_what_is_there_is_compared_in_the_same_run(original, capsys):
    envs.main(["--env", "sokoban", "--rooms", "--seeds", "3", "--room-utils", str(original)])
    printed = capsys.readouterr().out
    assert "mean of 3 seeds" in printed
    for name in ("the suite's panel", "paper_room", "the paper family's own"):
        assert f"  {name} " in printed
    assert printed.count(" times") == 1
    assert printed.count("0 of 3") == 1, "the stand-in draws no board of ours"
    assert "to compare with it" not in printed


def test_a_group_and_its_members_alone_play_the_same_updates():
    players = [sokoban_groups.updates(2, 8, "text"), sokoban_groups.bare_members(2, 8, "text")]
    for _ in range(sokoban_groups.UPDATES):
        players[1]()  # the group has drawn its rooms by playing all of them
    group, alone = ([play() for _ in range(8)] for play in players)
    assert group == alone
    assert min(group) < 2 * 8 * 15 == max(group), "those that have ended do not count"


def test_a_group_update_is_told_in_parts_that_make_up_the_whole(capsys):
    envs.main(["--env", "sokoban", "--group", "--groups", "3"])
    printed = capsys.readouterr().out
    assert printed.count("one update of 3 groups of 8") == 2
    for part in ("environment, without anchors", "anchors", "counting", "batching", "in all", "with one environment"):
        assert printed.count(f"  {part}") >= 2
    shares = [float(line.split()[-1].rstrip("%")) for line in printed.splitlines() if line.endswith("%")]
    assert len(shares) == 8
    assert sum(shares) == pytest.approx(200, abs=4)


@pytest.mark.full
def test_the_recovery_of_workers_is_timed_for_every_fault(capsys):
    envs.main(["--env", "sokoban", "--recovery", "--repeats", "1", "--steps", "2", "--timeout", "5"])
    printed = capsys.readouterr().out
    for fault in ("killed", "raises", "stopped", "hangs"):
        for part in ("in all", "silence", "start", "replay"):
            assert any(line.split()[:-2] == [fault, *part.split()] for line in printed.splitlines()), (fault, part)


@pytest.mark.slow
def test_what_webshop_costs_is_told_by_kind_of_action(capsys):
    envs.main(["--env", "webshop", "--walks", "6", "--large", "0"])
    printed = capsys.readouterr().out
    for row in ("memory with 128 sessions", "open a product", "search", "buy", "steps"):
        assert row in printed


def test_levels_and_single_engines_are_measured_on_rooms_that_nothing_has_drawn(capsys):
    sokoban.levels(2)
    sokoban.single(0.01)
    printed = capsys.readouterr().out
    for name in ("6x6", "8x8-1box", "8x8-2box", "10x10-long", "exact, rgb", "gym, rgb", "exact, text", "gym, text"):
        assert f"  {name} " in printed
    first = next(sokoban_groups.UNSEEN)
    play = sokoban_groups.updates(2, 2, "text", fresh=True)
    play(), play()
    assert next(sokoban_groups.UNSEEN) == first + 3, "each is of rooms of its own"
