"""The environments' benchmark runs and compares with what is there; how fast is never asserted."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from benchmarks import envs, peers, sokoban, sokoban_groups

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
    path = tmp_path / "gym_sokoban" / "envs" / "room_utils.py"
    path.parent.mkdir(parents=True)
    path.write_text(ORIGINAL, encoding="utf-8")
    (tmp_path / "gym_sokoban" / "__init__.py").write_text("raise ImportError('not to be imported')", encoding="utf-8")
    return path


def test_what_is_there_is_compared_in_the_same_run(original, monkeypatch, capsys):
    monkeypatch.syspath_prepend(original.parent.parent.parent)
    monkeypatch.delitem(sys.modules, "gym_sokoban", raising=False)
    importlib.invalidate_caches()
    envs.main(["--env", "sokoban", "--rooms", "--seeds", "3", "--room-utils", str(original)])
    printed = capsys.readouterr().out
    assert "mean of 3 seeds" in printed
    for name in ("the suite's panel", "gym_sokoban_room", "paper_room", "gym-sokoban's own", "the paper family's own"):
        assert f"  {name} " in printed
    assert printed.count(" times") == 2
    assert printed.count("0 of 3") == 2, "the stand-in draws no board of ours"
    assert "to compare with it" not in printed


def test_boards_are_compared_with_those_of_gym_sokoban(capsys):
    pytest.importorskip("imageio", reason="comes with gym-sokoban")
    sokoban.rooms(range(5))
    assert "5 of 5" in capsys.readouterr().out


def test_what_is_missing_is_named_with_the_command_that_brings_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sokoban, "MEMBERS", 16)
    monkeypatch.setattr(sokoban, "SHAPES", ((1, 2),))
    envs.main(["--env", "sokoban", "--seeds", "2", "--seconds", "0.001"])
    printed = capsys.readouterr().out
    for package, command in peers.INSTALL.items():
        name = package.replace("_", "-")
        assert f"{name} is not installed; to compare with it: {command}" in printed
    assert "--room-utils" in printed
    assert " times" not in printed


def test_every_engine_takes_its_turns(monkeypatch, capsys):
    pytest.importorskip("imageio", reason="comes with gym-sokoban")
    monkeypatch.setattr(sokoban, "MEMBERS", 16)
    monkeypatch.setattr(sokoban, "FEW", 2)
    sokoban.engines(0.01)
    printed = capsys.readouterr().out
    for name in ("gym-sokoban", "SyncVectorEnv of 2", "AsyncVectorEnv of 2", "SokobanBatch of 16"):
        assert printed.count(f"  {name} ") + printed.count(f"  {name},") >= 2, name
    assert printed.count(" 1.0 times gym-sokoban") >= 2


def test_updates_of_groups_are_compared_with_gym_sokoban_and_the_bare_batch(monkeypatch, capsys):
    pytest.importorskip("imageio", reason="comes with gym-sokoban")
    monkeypatch.setattr(sokoban, "SHAPES", ((1, 3), (2, 2)))
    envs.main(["--env", "sokoban", "--shapes", "--seconds", "0.001"])
    frames, text = capsys.readouterr().out.split("Sokoban through GroupVectorEnv, ")[1:]
    for printed, bare in ((frames, ("its members", "the batch")), (text, ("its members",))):
        assert printed.count(" 1.0 times gym-sokoban") >= 1
        lines = {line.strip().split("  ")[0]: line for line in printed.splitlines()}
        for name in ("1 x 3", "2 x 2", "2 x 2, rooms not seen before"):
            assert " times gym-sokoban" in lines[name]
            assert all(f" of {what}" in lines[name] for what in bare)
        assert {"1 x 3, its members alone", "2 x 2, its members alone"} <= set(lines)


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


def test_engines_are_timed_by_the_clock_they_bring():
    spent = iter(range(1_000_000))
    engine = sokoban.Engine("one a second", 4, lambda actions: None, cpu=lambda: 1000.0 * next(spent))
    assert 0 < sokoban.rates([engine], seconds=0.001)["one a second"] < 1e6


def test_a_board_of_theirs_is_drawn_until_it_succeeds(original):
    module = peers.room_utils(original)
    for seed in range(6):
        fixed, start = peers.their_board(module, seed, 5, 7)
        assert fixed.shape == start.shape == (5, 7)
        assert (fixed == 20).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rooms"], "--env"),
        (["--env", "chess"], "--env"),
        (["--env", "sokoban", "--roms"], "--roms"),
        (["--env", "sokoban", "--rooms", "--seeds", "0"], "--seeds must be positive, got 0"),
        (["--env", "sokoban", "--engines", "--seconds", "-1"], "--seconds must be positive, got -1"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        envs.main(arguments)
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.py: no such file"):
        peers.room_utils(tmp_path / "gone.py")


@pytest.mark.full
def test_the_recovery_of_workers_is_timed_for_every_fault(capsys):
    envs.main(["--env", "sokoban", "--recovery", "--repeats", "1", "--steps", "2", "--timeout", "5"])
    printed = capsys.readouterr().out
    for fault in ("killed", "raises", "stopped", "hangs"):
        for part in ("in all", "silence", "start", "replay"):
            assert any(line.split()[:-2] == [fault, *part.split()] for line in printed.splitlines()), (fault, part)


def test_what_webshop_costs_is_told_by_kind_of_action(capsys):
    envs.main(["--env", "webshop", "--walks", "20", "--large", "0"])
    printed = capsys.readouterr().out
    for row in ("memory with 128 sessions", "open a product", "search", "buy", "steps"):
        assert row in printed
