"""The command that runs a study: what it lists, and that a study goes on after any end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from kept_fixtures import STUDY
from paths import ROOT
from rich.console import Console

from crbc_lab.cli import main
from crbc_lab.studies.comparison import keep as keep_module
from crbc_lab.studies.comparison import run as run_module
from crbc_lab.studies.comparison.definition import load_study
from crbc_lab.studies.comparison.kept import read
from crbc_lab.studies.comparison.run import Runner
from crbc_lab.studies.comparison.trainings import trainings
from crbc_rl.errors import ConfigError
from crbc_rl.names import studies


def test_the_list_names_every_study(capsys):
    main(["study", "--list"])
    told = capsys.readouterr().out
    assert all(name in told for name in studies())


def started(study, place, gpus=1):
    """A process that runs the study in `place`, one training after the other."""
    options = ["--jobs", "1", "--gpus", str(gpus), "--runs", place / "runs", "--results", place / "results"]
    command = [sys.executable, "-m", "crbc_lab.cli", "study", study.file, *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_result_that_is_refused_ends_no_other_training(monkeypatch, tmp_path):
    def keep(training, folder, results):
        raise ConfigError(f"seed {training.seed} is of another config")

    monkeypatch.setattr(run_module, "keep", keep)
    runner, lines = Runner(tmp_path, tmp_path, 1, Console()), []
    child, bars = SimpleNamespace(failed=False, folder=tmp_path), SimpleNamespace(print=lines.append)
    assert [runner._ended(str(seed), child, SimpleNamespace(seed=seed), bars) for seed in (3, 4)] == [False, False]
    assert lines == ["3: seed 3 is of another config", "4: seed 4 is of another config"]


@pytest.mark.full
def test_a_study_that_is_killed_goes_on_and_ends_in_a_table(study, tmp_path):
    """Killed within the second training, it leaves the first alone; the results equal those of one that ran through."""

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert started(study, whole).wait() == 0
    first = started(study, killed)
    results = killed / "results/lab/sokoban"
    while not list(results.rglob("seed0.json")):
        assert first.poll() is None
        time.sleep(0.1)
    kept = {path: path.stat().st_mtime_ns for path in results.rglob("seed*.json")}
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert started(study, killed).wait() == 0
    assert all(path.stat().st_mtime_ns == made for path, made in kept.items()), "a finished training was run again"
    made = {path.relative_to(results): json.loads(path.read_text()) for path in results.rglob("seed*.json")}
    assert len(made) == 8
    for path, told in made.items():
        other = json.loads((whole / "results/lab/sokoban" / path).read_text())
        for name in ("digest", "curve", "validation", "end", "success"):
            assert told[name] == other[name], (path, name)
    assert "not separated" in (results / "two.md").read_text()


@pytest.mark.full
def test_a_training_of_several_processes_stops_after_its_update_and_goes_on(tmp_path):
    """As on a node of GPUs: torchrun starts a process for each, and none is ended in the middle of an update."""
    setting = STUDY["settings"]["lab"]["sokoban"]
    alone = {**setting, "seeds": 1, "set": {**setting["set"], "updates": 4, "save_every": 4}, "set_tuning": {}}
    path = tmp_path / "one.yaml"
    path.write_text(
        yaml.safe_dump({**STUDY, "settings": {"lab": {"sokoban": alone}}, "variants": {"crbc": {"label": "CRBC"}}})
    )
    study = load_study(str(path))
    run = tmp_path / "runs/lab/sokoban/crbc/seed0"
    first = started(study, tmp_path, gpus=2)
    while not (run / "metrics.jsonl").is_file():
        assert first.poll() is None
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 1
    saved = list((run / "checkpoints").iterdir())
    assert len(saved) == 1 and not list(tmp_path.rglob("seed0.json"))
    assert started(study, tmp_path, gpus=2).wait() == 0
    assert read(tmp_path / "results/lab/sokoban/crbc/seed0.json").seed == 0
    training = next(trainings(study, "lab", "sokoban", 1, {}))
    other = replace(training, config=training.config.model_copy(update={"updates": 3}))
    with pytest.raises(ConfigError, match="lab/sokoban/crbc/seed0 holds a training of other settings"):
        keep_module.keep(other, run, tmp_path)
