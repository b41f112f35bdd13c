"""A study of one's own: docs/your_own_study.md as it stands, with a module that credits its own way."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kept_fixtures import keep_made_up
from paths import ROOT
from rich.console import Console

from crbc_lab.child_runs import ChildRun
from crbc_lab.cli import main
from crbc_lab.commands.compare import run_settings
from crbc_lab.studies.comparison import definition
from crbc_lab.studies.comparison import run as run_module
from crbc_lab.studies.comparison.definition import TUNING_SEED, load_study
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


def test_its_module_lies_beside_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "my_credit.py").write_text("solved = None\n", encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    definition._loaded.cache_clear()
    found = list(trainings(load_study(str(folder / "mine.yaml")), "lab", "sokoban", 1, {}))[-1]
    assert found.config.modules["my_credit"].file == str(folder / "my_credit.py")


def test_who_chooses_a_candidate_does_not_see_the_test_tasks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    training, said = own(), list[str]()
    monkeypatch.setattr(run_module, "keep", lambda *_: True)
    runner, child = Runner(folder / "runs", folder, 1, Console()), ChildRun("x", training.config, folder, status=0)
    for one in (training, training.with_seed(TUNING_SEED)):
        keep_made_up(one, folder, [1, 0])
        assert runner._ended("x", child, one, SimpleNamespace(print=said.append))  # type: ignore[arg-type]
    assert said == ["x: 25.0% to 50.0% of the test tasks", "x: 40.0% of the validation tasks"]


def test_more_seeds_than_a_table_has_are_refused(folder: Path) -> None:
    runner = Runner(folder / "runs", folder, 1, Console())
    with pytest.raises(ConfigError, match="--seeds 21: a table has 20 at most; a study of your own may say more"):
        run_settings(load_study("mine.yaml"), "lab", ["sokoban"], 21, runner)


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
