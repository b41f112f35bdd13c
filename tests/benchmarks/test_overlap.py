"""The benchmark of overlap runs; how fast is never asserted."""

from __future__ import annotations

import pytest

from benchmarks import overlap


def test_every_way_to_play_is_told_with_and_without_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    overlap.main(["--groups", "2", "--repeats", "1", "--wait", "5"])
    printed = capsys.readouterr().out
    for wait in ("0", "5"):
        assert f"Playing 2 groups of 8, {wait} ms of waiting in a step" in printed
    for waves in (1, 2, 3):
        assert printed.count(f"  rollout.waves={waves} ") == 2
