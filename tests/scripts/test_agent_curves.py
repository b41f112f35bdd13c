"""scripts/agent_curves.py: what it takes from a run, and that it draws it."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
curves = importlib.import_module("agent_curves")


def made_up(folder, seed=0, gain=0.1, updates=3, finished=True):
    """A run folder with a validation after every update."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"seed: {seed}\n")
    with open(folder / "metrics.jsonl", "w") as file:
        for update in range(updates + 1):
            success = 0.3 + gain * update
            record = {"update": update, "seconds/update": 90.0, "seconds/eval": 30.0}
            splits = ["validation", *(["test"] if update == 0 or (finished and update == updates) else [])]
            for split in splits:
                figures = {"success": success, "low": success - 0.1, "high": success + 0.1, "episodes": 128}
                record |= {f"{split}/{name}": value for name, value in figures.items()}
            file.write(json.dumps(record) + "\n")
    return folder


@pytest.fixture
def command(tmp_path):
    def run(*args):
        curves.main(list(map(str, args)), tmp_path / "agents.json", tmp_path / "agents.png")
        return json.loads((tmp_path / "agents.json").read_text())

    return run


def test_a_run_as_figures(tmp_path, command):
    data = command("add", "sokoban", "CRBC", made_up(tmp_path / "a", seed=7))
    assert data["sokoban"]["methods"]["CRBC"]["7"] == {
        "episodes": 128,
        "update": [0, 1, 2, 3],
        "minutes": [0.0, 1.0, 2.0, 3.0],  # without the evaluations
        "success": [0.3, 0.4, 0.5, 0.6],
        "test": {"episodes": 128, "before": [0.3, 0.2, 0.4], "after": [0.6, 0.5, 0.7]},
    }


def test_seeds_are_added_and_replaced(tmp_path, command):
    command("add", "sokoban", "CRBC", made_up(tmp_path / "a", 10), made_up(tmp_path / "b", 2))
    data = command("add", "sokoban", "CRBC", made_up(tmp_path / "c", 10, finished=False))
    seeds = data["sokoban"]["methods"]["CRBC"]
    assert list(seeds) == ["2", "10"]
    assert seeds["10"]["test"]["after"] is None
    with pytest.raises(SystemExit, match="the same seed"):
        command("add", "sokoban", "CRBC", tmp_path / "a", tmp_path / "c")
    with pytest.raises(SystemExit, match=r"it has no config\.yaml"):
        command("add", "sokoban", "CRBC", tmp_path)


def test_the_mean_is_over_updates_that_all_seeds_have():
    runs = [{"update": [0, 2, 4], "success": [0, 0.5, 1]}, {"update": [0, 4], "success": [0.2, 0.6]}]
    assert curves._shared_updates(runs) == [0, 4]
    assert curves._mean(runs, "success", [0, 4]) == [0.1, 0.8]


def test_a_teacher_of_a_study_or_as_a_number(tmp_path, command):
    rate = {"rate": 0.875, "won": 7, "tasks": 8}
    study = {"split": "test", "teacher": {"hasty": 0.3}, "findings": {"success": {"teacher": rate}}}
    (tmp_path / "agent.json").write_text(json.dumps(study))
    told = command("teacher", "alfworld", tmp_path / "agent.json")["alfworld"]["teacher"]
    assert told == {"success": 0.875, "tasks": 8, "split": "test", "options": {"hasty": 0.3}}
    assert command("teacher", "alfworld", "0.5")["alfworld"]["teacher"] == {"success": 0.5}
    with pytest.raises(SystemExit, match="no share from 0 to 1"):
        command("teacher", "alfworld", "12")


@pytest.mark.parametrize("x", ["minutes", "updates"])
def test_the_picture_is_drawn_from_the_data_alone(x, tmp_path, command):
    with pytest.raises(SystemExit, match="no curves yet"):
        command("draw")
    command("add", "sokoban", "CRBC", made_up(tmp_path / "a"))
    command("add", "maze", "other", made_up(tmp_path / "b", updates=2, finished=False))
    command("teacher", "sokoban", "0.9")
    command("draw", "--x", x)
    assert (tmp_path / "agents.png").read_bytes().startswith(b"\x89PNG")
