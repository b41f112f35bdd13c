"""What a run shows: lines that fit, bars that move, and no long silence where there are none."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from crbc_rl.runs import progress
from crbc_rl.runs.progress import Bars, TrainProgress, update_line

FIGURES = {"success": 1.0, "reward": -10.95, "length": 105.0, "invalid": 1.0, "clip_share": 0.123, "kl": 0.0123}
SECONDS = {"seconds/rollout": 1234.5, "seconds/credit": 0.01, "seconds/train": 345.6}
VALIDATED = {"validation/success": 1.0, "seconds/eval": 66.6}
TESTED = {"test/success": 0.5}
RECORDS: dict[str, dict[str, Any]] = {
    "first": {"update": 0, **VALIDATED, **TESTED},
    "plain": {"update": 12345, **FIGURES, **SECONDS},
    "validated": {"update": 12345, **FIGURES, **SECONDS, **VALIDATED},
    "last": {"update": 12345, **FIGURES, **SECONDS, **VALIDATED, **TESTED},
}


def shown(record: dict[str, Any], width: int) -> str:
    return Text.from_markup(update_line(record, width, 5)).plain


@pytest.mark.parametrize("width", [20, 40, 79, 100, 200])
@pytest.mark.parametrize("name", RECORDS)
def test_a_line_never_wraps(name: str, width: int) -> None:
    line = shown(RECORDS[name], width)
    assert len(line) <= width and line.startswith("update ")


def test_at_eighty_columns_a_line_has_what_matters_most() -> None:
    assert shown(RECORDS["first"], 79) == "update     0  val 100.0%  test 50.0%  66.6 s  eval 66.6"
    for name, parts in (
        ("plain", ("success 100.0%", "kl 0.0123", "1580.1 s")),
        ("validated", ("success 100.0%", "val 100.0%", "1646.7 s", "kl")),
        ("last", ("success 100.0%", "val 100.0%", "test 50.0%", "1646.7 s")),
    ):
        assert all(part in shown(RECORDS[name], 79) for part in parts), name


def test_a_wide_line_has_everything() -> None:
    assert shown(RECORDS["last"], 200) == (
        "update 12345  success 100.0%  reward -10.95  length 105.0  invalid 100.0%  clip  12.3%  kl 0.0123  "
        "val 100.0%  test 50.0%  1646.7 s  rollout 1234.5, credit 0.0, train 345.6, eval 66.6"
    )


def play(console: Console) -> None:
    with TrainProgress(console, 60) as told:
        told.begin(0)
        told.phase("eval")
        for done in (64, 128):
            told.episodes(done, 128)
        told.record({"update": 1, **FIGURES, **SECONDS})


def test_a_pipe_gets_lines_without_control_codes() -> None:
    out = io.StringIO()
    play(Console(file=out, width=80))
    (line,) = out.getvalue().splitlines()
    assert line.startswith("update   1") and "\x1b" not in out.getvalue() and "\r" not in out.getvalue()


def test_a_terminal_gets_bars_for_the_run_and_for_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.TrainProgress, "record", lambda self, record: self._bars._bars.refresh())
    out = io.StringIO()
    play(Console(file=out, width=80, force_terminal=True, color_system=None))
    assert "128/128" in out.getvalue() and "0/60" in out.getvalue()


def test_a_pipe_is_not_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.01)
    out = io.StringIO()
    with TrainProgress(Console(file=out, width=80), 60) as told:
        told.phase("eval")
        told.episodes(64, 512)
        for _ in range(1000):
            if out.getvalue().count("\n") > 1:
                break
            time.sleep(0.01)
    assert "  after update 0: eval, 64 of 512 episodes, 0 s" in out.getvalue()


def test_a_quick_command_says_nothing_about_its_progress() -> None:
    out = io.StringIO()
    with Bars(Console(file=out, width=80), lambda: "still there") as bars:
        bars.update(bars.add("tasks", total=2), completed=1)
    assert out.getvalue() == ""
