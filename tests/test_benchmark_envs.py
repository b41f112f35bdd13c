"""The environments' benchmark runs and compares with what is there; how fast is never asserted."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks import envs as benchmark

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
    importlib.invalidate_caches()
    benchmark.main(["--env", "sokoban", "--rooms", "--seeds", "3", "--room-utils", str(original)])
    printed = capsys.readouterr().out
    assert "mean of 3 seeds" in printed
    for name in ("generate_room", "gym_sokoban_room", "paper_room", "gym-sokoban's own", "the paper family's own"):
        assert f"  {name} " in printed
    assert printed.count(" times") == 2
    assert "to compare with it" not in printed


def test_what_is_missing_is_named_with_the_command_that_brings_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    benchmark.main(["--env", "sokoban", "--rooms", "--seeds", "2"])
    printed = capsys.readouterr().out
    assert f"gym-sokoban is not installed; to compare with it: {benchmark.INSTALL}" in printed
    assert "--room-utils" in printed
    assert " times" not in printed


def test_a_board_of_theirs_is_drawn_until_it_succeeds(original):
    module = benchmark.room_utils(original)
    for seed in range(6):
        fixed, start = benchmark.their_board(module, seed, 5, 7)
        assert fixed.shape == start.shape == (5, 7)
        assert (fixed == 20).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rooms"], "--env"),
        (["--env", "sokoban"], "--rooms"),
        (["--env", "sokoban", "--rooms", "--seeds", "0"], "--seeds must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        benchmark.main(arguments)
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.py: no such file"):
        benchmark.room_utils(tmp_path / "gone.py")


@pytest.mark.slow
def test_the_recovery_of_workers_is_timed_for_every_fault(capsys):
    benchmark.main(["--env", "sokoban", "--recovery", "--repeats", "1", "--steps", "2"])
    printed = capsys.readouterr().out
    for fault in ("killed", "raises", "stopped", "hangs"):
        for part in ("in all", "silence", "start", "replay"):
            assert any(line.split()[:-2] == [fault, *part.split()] for line in printed.splitlines()), (fault, part)
