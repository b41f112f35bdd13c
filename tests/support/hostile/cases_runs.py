"""Run folders, recordings and checkpoints of others."""

from __future__ import annotations

import json
from pathlib import Path

from hostile.case import Case


def report_link(folder: Path) -> None:
    make_run(folder)
    (folder / "here" / "run" / "report.html").symlink_to(folder / "outside" / "precious.txt")


def make_run(folder: Path, *lines: str) -> Path:
    """FOLDER/here/run, a run with two records; `lines` are added to its metrics."""
    run = folder / "here" / "run"
    run.mkdir()
    (run / "config.yaml").write_text("name: run\nmodel: model\nenv: {id: CRBC-Sokoban-v0}\n")
    tested = {"success": 0.5, "low": 0.4, "high": 0.6, "successes": 5, "episodes": 10}
    records = [
        json.dumps({"update": 0, **{f"test/{name}": value for name, value in tested.items()}}),
        json.dumps({"update": 1, "success": 0.5, "reward": 1.0}),
    ]
    (run / "metrics.jsonl").write_text("".join(record + "\n" for record in [*records, *lines]))
    return run


CASES = [
    Case(
        name="report-honest",
        finding="what is honest still works",
        status=0,
        make=lambda folder: (make_run(folder), None)[1],
        argv=("report", "run"),
    ),
    Case(
        name="report-through-a-link",
        finding="no write elsewhere",
        status=2,
        says=("report.html", "is a link to"),
        make=report_link,
        argv=("report", "run"),
    ),
]
