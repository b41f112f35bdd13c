"""What a run shows: lines that fit, bars that move, and no long silence where there are none."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from crbc_rl.runs import progress
from crbc_rl.runs.progress import TrainProgress, update_line

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
    return Text.from_markup(update_line(record, width, 5)).plain


@pytest.mark.parametrize("width", [20, 40, 79, 100, 200])
@pytest.mark.parametrize("name", RECORDS)
def test_a_line_never_wraps(name: str, width: int) -> None:
    line = shown(RECORDS[name], width)
    assert len(line) <= width and line.startswith("update ")


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
