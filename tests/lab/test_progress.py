"""What a run shows: lines that fit, bars that move, and no long silence where there are none."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from crbc_lab import progress
from crbc_lab.progress import TrainProgress, update_line

FIGURES = {"success": 1.0, "reward": -10.95, "length": 105.0, "invalid": 1.0, "clip_share": 0.123, "kl": 0.0123}
SECONDS = {"seconds/rollout": 1234.5, "seconds/credit": 0.01, "seconds/train": 345.6}
VALIDATED = {"validation/success": 1.0, "seconds/eval": 66.6}
TESTED = {"test/success": 0.5}
RECORDS: dict[str, dict[str, Any]] = {
    "first": {"update": 0, **VALIDATED, **TESTED},
    "plain": {"update": 12345, **FIGURES, **SECONDS},
    "validated": {"update": 12345, **FIGURES, **SECONDS, **VALIDATED},
    "last": {"update": 12345, **FIGURES, **SECONDS, **VALIDATED, **TESTED},
    "own loss": {
        "update": 12345,
        **SECONDS,
        **{name: FIGURES[name] for name in FIGURES if name not in ("clip_share", "kl")},
    },
}


def shown(record: dict[str, Any], width: int) -> str:
    return Text.from_markup(update_line(record, width, 12345, 86_399.0)).plain


@pytest.mark.parametrize("width", [22, 40, 79, 100, 200])
@pytest.mark.parametrize("name", RECORDS)
def test_a_line_never_wraps(name: str, width: int) -> None:
    line = shown(RECORDS[name], width)
    assert len(line) <= width and line.startswith("update ")


def test_lines_have_the_same_columns() -> None:
    for width in (79, 110, 400):
        lines = [shown(record, width) for record in RECORDS.values()]
        names = [re.findall(r"[a-z]+(?= +[-0-9])", re.split(r" left| s  ", line)[0]) for line in lines]
        starts = [[line.index(name) for name in names[0]] for line in lines]
        assert all(one == names[0] for one in names) and all(one == starts[0] for one in starts), width
    line = shown(RECORDS["first"], 110)
    assert line.startswith("update     0 of 12345  success      -  ") and "validation 100.0%  test  50.0%" in line
    assert "23:59:59 left" in line and "kl       -" in shown(RECORDS["own loss"], 400)


def play(console: Console) -> None:
    with TrainProgress(console, 60) as told:
        told.begin(0)
        told.phase("validation")
        for done in (64, 128):
            told.episodes(done, 128)
        told.record({"update": 1, **FIGURES, **SECONDS})


def test_a_pipe_gets_lines_without_control_codes() -> None:
    out = io.StringIO()
    play(Console(file=out, width=80))
    (line,) = out.getvalue().splitlines()
    assert line.startswith("update  1 of 60  success") and "\x1b" not in out.getvalue() and "\r" not in out.getvalue()


def test_a_pipe_is_not_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.01)
    out = io.StringIO()
    with TrainProgress(Console(file=out, width=80), 60) as told:
        told.begin(0)
        told.phase("test")
        told.episodes(64, 512)
        for _ in range(1000):
            if out.getvalue().count("\n") > 1:
                break
            time.sleep(0.01)
    assert "  update 0 of 60: test, 64 of 512 episodes, 0 s, about" in out.getvalue()


@pytest.mark.parametrize("done", [0, 7])  # from the start, and resumed
def test_work_is_called_by_its_own_update_and_time_left_is_that_of_this_start(
    monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    told = TrainProgress(Console(file=out, width=80), 60)
    told.begin(done)
    if not done:
        now[0] = 500.0
        told.record({"update": 0, **VALIDATED, **TESTED})
        assert "- left" in out.getvalue()
    told.phase("rollout")
    assert told._state() == f"  update {done + 1} of 60: rollout, 0 s"
    now[0] += 10.0
    told.phase("validation")
    assert told._state() == f"  update {done + 1} of 60: validation, 0 s"
    told.episodes(0, 12)
    now[0] += 1.0
    assert told._state() == f"  update {done + 1} of 60: validation, 0 of 12 episodes, 1 s"
    told.episodes(4, 12)
    now[0] += 1.0
    assert told._state() == f"  update {done + 1} of 60: validation, 4 of 12 episodes, 2 s, about 4 s left"
    now[0] -= 2.0
    told.record({"update": done + 1, **FIGURES, **SECONDS, **VALIDATED})
    now[0] += 2.0
    told.record({"update": done + 2, **FIGURES, **SECONDS})
    left = 6 * (60 - done - 2)
    assert out.getvalue().splitlines()[-1].count(f"0:{left // 60:02}:{left % 60:02} left") == 1
