"""A study of one's own: docs/your_own_study.md as it stands, with a module that credits its own way."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from kept_fixtures import keep_made_up
from paths import ROOT
from rich.console import Console

from crbc_lab.cli import main
from crbc_lab.studies.comparison import definition
from crbc_lab.studies.comparison.definition import load_study
from crbc_lab.studies.comparison.run import Runner
from crbc_lab.studies.comparison.trainings import Training, trainings
from crbc_rl.config.extensions import VARIABLE
from crbc_rl.errors import ConfigError

PAGE = (ROOT / "docs" / "your_own_study.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's two files in the current folder, without permission to run the module."""
    for name, language in (("my_credit.py", "python"), ("mine.yaml", "yaml")):
        found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
        assert found is not None
        (tmp_path / name).write_text(found[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_credit", raising=False)
    definition._loaded.cache_clear()
    return tmp_path


def own() -> Training:
    """The training of the page's own row, with seed 0, as a process that begins now sees it."""
    definition._loaded.cache_clear()
    found = list(trainings(load_study("mine.yaml"), "lab", "sokoban", 1, {}))[-1]
    assert found.config.credit.method == "my_credit:solved"
    return found


def test_its_trainings_are_checked_without_running_its_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["study", "mine.yaml", "--dry-run"])
    told = capsys.readouterr().out
    assert f"{folder}/my_credit.py would run: allow it with --allow-import" in " ".join(told.split())
    assert "lab/sokoban/grpo: sound, and can be run here" in told


def test_with_permission_each_of_its_trainings_is_sound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["study", "mine.yaml", "--dry-run", "--allow-import"])
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 9 and all(": sound" in line for line in told)  # three rows, and a candidate of each by its key
    assert any(line.startswith("lab/sokoban/solved,w_step=0.5,") for line in told)


def test_a_module_that_has_changed_makes_another_training(folder: Path) -> None:
    before = own()
    assert before.key == "solved"
    file = folder / "my_credit.py"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert own().place == before.place and own().digest != before.digest


def test_what_is_kept_is_not_written_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    training = own()
    kept = folder / "results" / training.place.with_suffix(".json")
    keep_made_up(training, folder / "results", [1, 0])
    text = kept.read_text(encoding="utf-8").replace(training.digest, "another")
    kept.write_text(text, encoding="utf-8")
    study = load_study("mine.yaml")
    untuned = study.model_copy(
        update={"variants": {name: one.model_copy(update={"candidates": []}) for name, one in study.variants.items()}}
    )
    with pytest.raises(ConfigError, match=r"seed0.json is kept from a training of other settings.*--results"):
        Runner(folder / "runs", folder / "results", 1, Console()).study(untuned, "lab", "sokoban", 1)
    assert kept.read_text(encoding="utf-8") == text and not (folder / "runs").exists()
