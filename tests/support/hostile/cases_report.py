"""The records and groups of others, which the report draws."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.runs import drawn_run

LONG = 500_000
NUMBERS, PAGE = "numbers in a run folder", "the report's HTML"
LEFT_OUT = "left out"


def drawn(name: str, *lines: str, says: tuple[str, ...] = (), groups: tuple[str, ...] = (), **more: Any) -> Case:
    """A run with these lines in metrics.jsonl and groups.jsonl, of which the report draws what is sound."""

    def make(folder: Path) -> None:
        run = drawn_run(folder, *lines)
        (run / "groups.jsonl").write_text("".join(line + "\n" for line in groups))

    return made(name, make, says, **more)


def made(name: str, make: Callable[[Path], None], says: tuple[str, ...] = (), **more: Any) -> Case:
    return Case(name=name, finding=NUMBERS, status=0, says=says, make=make, argv=("report", "run"), check=sound, **more)


def sound(folder: Path) -> None:
    """The report is there, of a bearable size, with the figures of the two honest records."""
    page = (folder / "here/run/report.html").read_text(encoding="utf-8")
    assert len(page) < 30_000_000, f"{len(page):,} characters"
    assert "50.0" in page and "40.0 to 60.0" in page, "the honest figures are missing"
    drawing = re.findall(r'(?:d|x|y|x1|x2|width|height|cx)="([^"]*)"', page)
    assert not [place for place in drawing if "nan" in place or "inf" in place], "it draws what is no number"


def group(steps: Any = None, **changes: Any) -> dict[str, Any]:
    """A group of two rollouts, as groups.jsonl keeps it."""
    own = [["a", "up", 0.0, "a"], ["b", "down", 1.0, "b"]] if steps is None else steps
    rollouts = [
        {"success": won, "truncated": False, "final_anchor": None, "score": float(won), "steps": own[: 2 - won]}
        for won in (False, True)
    ]
    return {"task": "t", "rollouts": rollouts} | changes


def record(update: Any, **figures: Any) -> str:
    """A line of metrics.jsonl, whose values are texts of JSON."""
    return f'{{"update": {update}' + "".join(f', "{name}": {value}' for name, value in figures.items()) + "}"


def line(update: Any, kept: Any) -> str:
    return json.dumps({"update": update, "group": kept})


def apart(text: str) -> dict[str, Any]:
    """A group whose rollouts start at two anchors, which the message repeats."""
    kept = group()
    kept["rollouts"][0] |= {"steps": [[text, "up", 0.0, ""]]}
    return kept


WRONG = ("NaN", "1e400", '"text"', "[1, 2]", '{"a": {}}', "true", "null")
HOSTILE_TEXT = "</script><script>alert(1)</script>\u2028<!--<script>'\"><img src=http://127.0.0.1:9/x onerror=alert(2)>"

FIGURES = ("reward", "kl", "test/success", "test/high", "seconds/train", "steps")
RECORDS = [
    drawn(
        "metrics-wrong-values",
        *(record(2 + i, **dict.fromkeys(FIGURES, value)) for i, value in enumerate(WRONG)),
    ),
]

GROUPS = [
    drawn("groups-control-characters", groups=(line(1, apart("\x1b[2J\n\x07")),), says=(LEFT_OUT,)),
]


def check_page(folder: Path) -> None:
    sound(folder)
    page = (folder / "here/run/report.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page and "unsafe" not in page, "no policy"
    assert "\u2028" not in "".join(re.findall(r"<script[^>]*>(.*?)</script>", page, re.S)), "a line break in a script"
    assert "<img" not in page and "alert(1)</script>" not in page, "a text is code"


def texts_that_are_code(folder: Path) -> None:
    run, text = drawn_run(folder), HOSTILE_TEXT
    steps = [[text, text, 0, text], ["b", "\ud800", 0, "\ud800"]]
    (run / "groups.jsonl").write_text(line(1, group(steps, task=text)) + "\n")
    (run / "versions.json").write_text(json.dumps({text: text}))


CASES = [
    *RECORDS,
    *GROUPS,
    Case(
        name="report-texts-that-are-code",
        finding=PAGE,
        status=0,
        make=texts_that_are_code,
        argv=("report", "run"),
        check=check_page,
    ),
]
