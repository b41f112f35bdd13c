"""Run folders that the cases then spoil."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from learner_fixtures import fresh_policy, small, write_config

SETTINGS = {"updates": 2, "save_every": 1, "env": {"kwargs": {"observation": "text", "max_steps": 2}}}
MORE = ("--set", "updates=3")


def drawn_run(folder: Path, *lines: str) -> Path:
    """FOLDER/here/run, a run with two records for the report; `lines` are added to its metrics."""
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


@cache
def _trained() -> tempfile.TemporaryDirectory[str]:
    """A run of two updates, with its config and its first model."""
    from crbc_rl.learner import Learner
    from crbc_rl.runs.folder import Run

    kept = tempfile.TemporaryDirectory(prefix="hostile-trained-", ignore_cleanup_errors=True)
    folder = Path(kept.name)
    fresh_policy().save(folder / "warm")
    config = small(folder / "warm", **SETTINGS)
    Learner(config, Run.start(folder / "run", config, resume=False)).train()
    return kept


def trained_run(folder: Path) -> Path:
    """FOLDER/here/run, a run of two updates that `crbc train config.yaml --run run --resume` continues."""
    here, made = folder / "here", Path(_trained().name)
    shutil.copytree(made, here, dirs_exist_ok=True)
    write_config(here / "config.yaml", here / "warm", **SETTINGS)
    return here / "run"


def spoiled(spoil: Callable[[Path, Path], object]) -> Callable[[Path], None]:
    """What lays out a trained run, and spoils it with the run's folder and the one outside."""

    def make(folder: Path) -> None:
        spoil(trained_run(folder), folder / "outside")

    return make


def lead_out(path: Path, outside: Path) -> None:
    """Move a file or a folder of the run outside, and leave a link."""
    target = outside / path.name
    if path.exists():
        shutil.move(path, target)
    else:
        target.mkdir()
    path.symlink_to(target)
