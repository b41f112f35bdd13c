"""The records and groups of others, which the report draws."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.runs import drawn_run, sparse

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


def of_rollout(**changes: Any) -> dict[str, Any]:
    kept = group()
    kept["rollouts"] = [rollout | changes for rollout in kept["rollouts"]]
    return kept


def apart(text: str) -> dict[str, Any]:
    """A group whose rollouts start at two anchors, which the message repeats."""
    kept = group()
    kept["rollouts"][0] |= {"steps": [[text, "up", 0.0, ""]]}
    return kept


def large(folder: Path, size: int = 6_000) -> None:
    """Groups with many anchors in two columns, each linked with others."""
    run = drawn_run(folder)
    rollouts = []
    for i in range(size):
        steps = [["s", f"to {i}", 0, ""], [f"l{i % 300}", f"on {i}", 0, ""], [f"r{i * 7 % 301}", "end", 0, ""]]
        rollouts.append({"success": i % 2 == 0, "truncated": False, "score": 0, "steps": steps})
    text = line(0, {"task": "t", "rollouts": rollouts})
    (run / "groups.jsonl").write_text("".join(text.replace('"update": 0', f'"update": {u}') + "\n" for u in range(6)))


def many(name: str, text: Callable[[int], str], count: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        run = drawn_run(folder)
        with (run / name).open("a") as file:
            file.writelines(text(i) + "\n" for i in range(count))

    return make


def one_long_line(name: str) -> Callable[[Path], None]:
    return lambda folder: sparse(drawn_run(folder) / name, 2 << 30)


FIGURES = ("reward", "kl", "entropy", "test/success", "test/high", "validation/success", "seconds/train", "steps")
WRONG = ("NaN", "-Infinity", "1e400", '"text"', "[1, 2]", '{"a": {}}', "true", "null", "9" * 4_000, "-1e308", "1e308")
MANY = [f"key {k}" for k in range(100_000)]
DEEP = "[" * 99_999
HOSTILE_TEXT = "</script><script>alert(1)</script>\u2028<!--<script>'\"><img src=http://127.0.0.1:9/x onerror=alert(2)>"

RECORDS = [
    drawn(
        "metrics-wrong-values",
        *(record(2 + i, **dict.fromkeys(FIGURES, value)) for i, value in enumerate(WRONG)),
        says=(LEFT_OUT,),
    ),
    drawn("metrics-digits", record(2, reward="9" * 5_000), record("9" * 5_000), says=(LEFT_OUT,)),
    drawn(
        "metrics-updates",
        *(record(u, reward=1) for u in ("1e18", "1" + "0" * 18, "9" * 400, "-5", "true", '"7"', "2.5", "[]")),
        says=(LEFT_OUT,),
    ),
    drawn("metrics-out-of-order", *(json.dumps({"update": u, "reward": u}) for u in (9, 3, 3, 2, 7)), says=(LEFT_OUT,)),
    drawn(
        "metrics-half-a-test",
        '{"update": 2, "test/success": 0.5}',
        '{"update": 3, "validation/success": 0.5, "validation/low": 0.4}',
        '{"update": 4, "test/success": 7, "test/low": -3, "test/high": 1e9, "test/episodes": 1.5}',
    ),
    drawn(
        "metrics-extremes",
        *(record(2 + i, reward=value, kl="-5e-324", entropy="1e-320") for i, value in enumerate(("1e99", "-1e99"))),
        *(record(4 + i, loss=value, **{"seconds/train": "1e-320"}) for i, value in enumerate(("1e307", "-1e307"))),
        says=(LEFT_OUT,),
    ),
    drawn("metrics-deep", record(2, reward=DEEP), says=(LEFT_OUT,)),
    drawn("metrics-wide", *(record(2 + i, **dict.fromkeys(MANY, i)) for i in range(30)), says=(LEFT_OUT,)),
    drawn("metrics-bytes", "\x00\x00", "{", "[]", "null", "\u2028", record(2, reward='"\\ud800"'), says=(LEFT_OUT,)),
    made(
        "metrics-a-million-lines",
        many("metrics.jsonl", lambda i: record(i + 2, reward=i % 7, **{"seconds/train": 1}), 1_000_000),
        (LEFT_OUT,),
    ),
    made("metrics-one-long-line", one_long_line("metrics.jsonl"), (LEFT_OUT,)),
    made("groups-one-long-line", one_long_line("groups.jsonl"), (LEFT_OUT,)),
]

GROUPS = [
    drawn(
        "groups-wrong-types",
        groups=(
            line(0, of_rollout(steps=[["a", "up", "text", 7]])),
            line(1, of_rollout(score=[1])),
            line(2, of_rollout(success="yes")),
            line(3, of_rollout(final_anchor=7)),
            line(4, of_rollout(steps={"a": 1})),
            line(5, of_rollout(steps=[["a", "up", 0.0, "label", "more"]])),
            line(6, of_rollout(steps=["abcd"])),
            line(7, {"task": "t", "rollouts": ["text"]}),
            line(8, {"task": "t", "rollouts": [[1]]}),
            line(9, group(task={"a": [1]})),
            line(10, group(task=None)),
            line(11, of_rollout(steps=[["a", {"x": 1}, 0.0, ""]])),
            line(12, of_rollout(steps=[["a", "up", 0.0, ["l"]]])),
            line(13, 7),
            '{"update": 14, "group": {"task": "t", "rollouts": 7}}',
        ),
        says=(LEFT_OUT,),
    ),
    drawn(
        "groups-wrong-numbers",
        groups=(
            line(0, of_rollout(score="X")).replace('"X"', "9" * 4_000),
            line(1, of_rollout(score="X")).replace('"X"', "NaN"),
            line(2, group([["a", "up", "X", "a"], ["b", "up", 0, "b"]])).replace('"X"', "1e999"),
            line(3, group([["a", "up", "X", "a"], ["b", "up", 0, "b"]])).replace('"X"', "9" * 4_000),
            line(4, of_rollout(steps=[["a", "up", True, ""]])),
            line(10**18, group()),
            line(-1, group()),
            line(True, group()),
            line("X", group()).replace('"X"', "9" * 4_000),
        ),
        says=(LEFT_OUT,),
    ),
    drawn("groups-control-characters", groups=(line(1, apart("\x1b[2J\n\x07")),), says=(LEFT_OUT,)),
    drawn("groups-deep", groups=(record(1, group=DEEP), record(2, group='{"a":' * 99_999)), says=(LEFT_OUT,)),
    drawn(
        "groups-long-texts",
        groups=(
            line(1, group([["a" * LONG, "u" * LONG, 0, "l" * LONG], ["b", "u", 0, "w " * LONG]], task="t" * LONG)),
        ),
    ),
    made("groups-too-large-to-draw", large, (LEFT_OUT,)),
    made("groups-as-large-as-drawn", partial(large, size=1_666)),
    made("groups-many-lines", many("groups.jsonl", lambda i: line(i, group()), 300_000)),
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
