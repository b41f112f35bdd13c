"""The commands that messages print are run as printed, and then what failed starts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from refusals import refusal

from crbc_lab import cli
from crbc_rl.config import extensions

TINY = "updates=1 rollout.num_groups=2 rollout.group_size=2 eval.episodes=2 eval.test_episodes=2 threads=1".split()  # noqa: SIM905
TINY += ["env.kwargs.max_steps=3", "rollout.max_new_tokens=4"]
TRAIN = ["train", "sokoban-tiny", "--run", "r", "--set", *TINY]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "data"))
    monkeypatch.delenv(extensions.VARIABLE, raising=False)
    return tmp_path


class Shell:
    """Runs commands in this process, as they are printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def refused(self, *args: str) -> str:
        return refusal(self.capsys, *args)

    def run(self, command: str, *more: str) -> str:
        cli.main([*shlex.split(command.removeprefix("crbc ")), *more])
        return self.capsys.readouterr().out


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def command(message: str, pattern: str) -> str:
    found = re.search(pattern, message)
    assert found is not None, message
    return found[0]


def test_a_run_that_exists_is_continued_as_told(folder: Path, shell: Shell) -> None:
    cli.main(TRAIN)
    assert command(shell.refused(*TRAIN), r"--resume") == "--resume"
    assert "held-out success" in shell.run(shlex.join(TRAIN), "--resume")


@pytest.mark.full
def test_each_kind_of_config_names_its_command(folder: Path, shell: Shell) -> None:
    told = shell.refused("train", "warmstart-sokoban")
    shell.run(command(told, r"crbc warmstart \S+"), "--steps", "1", "--out", "w")
    assert (folder / "w/model.safetensors").is_file()
    told = shell.refused("warmstart", "sokoban-tiny")
    assert "nothing is started" in shell.run(command(told, r"crbc train \S+"), "--dry-run")


def test_a_misspelt_name_is_replaced_as_told(folder: Path, shell: Shell) -> None:
    told = shell.refused("train", "sokoban-tny", "--dry-run")
    name = command(told, r"(?<=did you mean ')[\w-]+")
    planned = shell.run(f"crbc train {name} --dry-run")
    assert "nothing is started" in planned and "anchors: paper-1, calibration slope " in planned
    told = shell.refused("train", "sokoban-tiny", "--set", "num_groups=2", "--dry-run")
    key = command(told, r"(?<=did you mean ')[\w.]+")
    assert "2 groups of 8" in " ".join(shell.run(f"crbc train sokoban-tiny --set {key}=2 --dry-run").split())
    told = shell.refused("train", "sokoban-tiny", "updates=3", "--dry-run")
    assert "nothing is started" in shell.run(f"crbc train sokoban-tiny {command(told, r'--set updates=3')} --dry-run")


@pytest.mark.full
def test_a_missing_model_is_made_as_told(folder: Path, shell: Shell) -> None:
    (folder / "empty").mkdir()
    told = shell.refused("train", "sokoban-tiny", "--set", "model=empty", *TINY)
    assert "crbc warmstart" in told
    shell.run("crbc warmstart warmstart-sokoban", "--steps", "1", "--out", "empty")
    assert "held-out success" in shell.run(shlex.join(["train", "sokoban-tiny", "--set", "model=empty", *TINY]))
