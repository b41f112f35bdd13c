"""Run folders of others: where links lead, and what is deleted."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.runs import MORE, drawn_run, lead_out, spoiled, trained_run

RESUME = ("train", "config.yaml", "--run", "run", "--resume", *MORE)
LINKS, DELETES, NUMBERS = "no write elsewhere", "no delete elsewhere", "numbers in a run folder"


def refused(name: str, spoil: Any, *says: str, argv: tuple[str, ...] = RESUME, finding: str = NUMBERS) -> Case:
    """A trained run, spoiled: the command ends in one line."""
    return Case(name=name, finding=finding, status=2, says=says, make=spoiled(spoil), argv=argv)


def through(name: str, path: str, argv: tuple[str, ...] = RESUME) -> Case:
    """A trained run with something outside: the command ends in one line that names the link."""
    return refused(name, lambda run, out: lead_out(run / path, out), path, "is a link to", argv=argv, finding=LINKS)


def went_on(folder: Path) -> None:
    assert (folder / "here/run/checkpoints/000003").is_dir(), "it did not go on from update 2"


# ---- links and pipes -------------------------------------------------------------------------


def honest_run(folder: Path) -> None:
    drawn_run(folder)


def years_outside(run: Path, outside: Path) -> None:
    lead_out(run / "checkpoints", outside)
    for year in ("2019", "2020", "000009-paper-result"):
        (outside / "checkpoints" / year).mkdir()
        (outside / "checkpoints" / year / "result.txt").write_text("years of work\n")


def warm_start_leads_out(folder: Path) -> None:
    (folder / "outside/model").mkdir()
    (folder / "outside/model/warmstart.json").write_text("{}")
    (folder / "here/out").symlink_to(folder / "outside/model")
    warm_start(folder)


def warm_start(folder: Path, out: str = "out") -> None:
    env = "{id: CRBC-Sokoban-v0, kwargs: {observation: text}}"
    (folder / "here/warm.yaml").write_text(f"out: {out}\nenv: {env}\nsteps: 1\nbatch: 2\n")


def write_board(folder: Path) -> None:
    """TensorBoard's file on a machine whose name is a path."""
    from crbc_rl.runs.metric_writers import TensorBoard

    socket.gethostname = lambda: f"x/../../../{folder.name}/outside/host"
    (folder / "here/tensorboard/events.out.tfevents.x").mkdir(parents=True)
    TensorBoard(folder / "here/tensorboard", 0).close()


LINKED = [
    Case(
        name="report-honest",
        finding="what is honest still works",
        status=0,
        make=honest_run,
        argv=("report", "run"),
    ),
    through("report-through-a-link", "report.html", argv=("report", "run")),
    refused("resume-years-outside", years_outside, "checkpoints", "is a link to", finding=DELETES),
    Case(
        name="warmstart-out-link",
        finding=DELETES,
        status=2,
        says=("out", "is a link to"),
        make=warm_start_leads_out,
        argv=("warmstart", "warm.yaml"),
    ),
    Case(
        name="init-name-link",
        finding=LINKS,
        status=2,
        says=("is a link to",),
        make=lambda folder: (folder / "here/my_env").symlink_to(folder / "outside/new"),
        argv=("init", "my_env"),
    ),
    Case(
        name="tensorboard-hostname-is-a-path",
        finding=LINKS,
        status=0,
        probe=write_board,
    ),
]


# ---- what is deleted -------------------------------------------------------------------------


def model_of_a_user(folder: Path) -> None:
    """A folder with a model, and a lock of another program."""
    run = trained_run(folder)
    shutil.rmtree(run)
    (run / "model").mkdir(parents=True)
    (run / "model/result.txt").write_text("years of work\n")
    (run / ".lock").write_text("4711")


def warm_start_with_results(folder: Path) -> None:
    warm_start(folder)
    (folder / "here/out/results").mkdir(parents=True)
    (folder / "here/out/results/paper.txt").write_text("years of work\n")
    (folder / "here/out/warmstart.json").write_text("{}")


def still_there(path: str) -> Any:
    def check(folder: Path) -> None:
        assert (folder / "here" / path).is_file(), f"{path} is gone"

    return check


DELETED = [
    Case(
        name="start-in-a-folder-with-a-lock",
        finding=DELETES,
        status=2,
        says=("holds other files",),
        make=model_of_a_user,
        argv=RESUME[:4],
        check=still_there("run/model/result.txt"),
    ),
    Case(
        name="warmstart-over-results",
        finding=DELETES,
        status=2,
        says=("holds other files than a warm start", "results"),
        make=warm_start_with_results,
        argv=("warmstart", "warm.yaml"),
        check=still_there("out/results/paper.txt"),
    ),
]


# ---- records ---------------------------------------------------------------------------------

TESTED = {"low": 0.4, "high": 0.6, "successes": 5, "episodes": 10}


def hostile_records(run: Path, outside: Path) -> None:
    """The first test is somebody's, with a kind whose name is markup and a command to the terminal."""
    names = {"test/success": 0.5} | {f"test/{name}": value for name, value in TESTED.items()}
    kinds = {"test/success/[/bold]": 0.5, "test/success/\x1b[2J": 0.5, "test/success/gone": "x", "test/success/": 1}
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines[0] = json.dumps({"update": 0, **names, **kinds}) + "\n"
    (run / "metrics.jsonl").write_text("".join([*lines, '{"update": -1}\n', "[" * 99_999 + "\n"]))


RUNS = [
    Case(
        name="resume-over-hostile-records",
        finding=NUMBERS,
        status=0,
        says=("held-out success", "50.0%"),
        make=spoiled(hostile_records),
        argv=RESUME,
        check=went_on,
    ),
]

CASES = [*RUNS, *LINKED, *DELETED]
