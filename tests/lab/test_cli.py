import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from learner_fixtures import write_config
from paths import ROOT
from refusals import refusal
from warm import Warm

from crbc_envs.storage.rollouts import read_recording
from crbc_lab import cli
from crbc_rl import config
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.evaluate import wilson


@pytest.mark.slow
def test_looking_at_runs_waits_for_no_torch() -> None:
    code = "import sys, crbc_lab.studies.comparison.run, crbc_lab.commands.compare, crbc_lab.report.live\n"
    code += "import crbc_lab.report.others\n"
    code += "sys.exit(bool({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_train_eval_and_report_from_the_command_line(
    warm: Warm, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command in a process of its own, the others in this one."""
    config = write_config(tmp_path / "c.yaml", model, updates=2)
    train = ("train", str(config), "--run", "my run", "--seed", "5", "--set", "credit.crbc.w_step=2")
    done = warm.run(train, tmp_path, {"COLUMNS": "200"})
    assert done.status == 0, done.err
    assert (
        "update 2 of 2" in done.out
        and "crbc view 'my run'  (" in done.out
        and "warm start" in done.out
        and "95 % interval" in done.out
    )
    assert (tmp_path / "my run/report.html").stat().st_size > 10_000

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert "already holds a run" in refusal(capsys, "train", str(config), "--run", "my run")
    cli.main([*train, "--resume"])
    assert "trained" in capsys.readouterr().out
    cli.main(["eval", "my run", "--policy", "last", "--episodes", "5", "--out", "a.json"])
    assert "5 test tasks" in capsys.readouterr().out
    assert read_recording(tmp_path / "a.transcripts.parquet").policy == "last, update 2"


@pytest.mark.parametrize(
    "given",
    [
        ("--set", "a.b=1", "c=2", "d=3"),
        ("--set", "a.b=1", "--set", "c=2", "d=3"),
        ("--set=a.b=1", "--set=c=2", "--set=d=3"),
    ],
)
def test_replacements_add_up_however_they_are_given(given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def load(path: Path, overrides: Sequence[str]) -> None:
        seen.extend(overrides)
        raise ConfigError("far enough")

    monkeypatch.setattr(config, "load_config", load)
    with pytest.raises(SystemExit):
        cli.main(["train", "sokoban-tiny", *given, "--seed", "4"])
    assert seen == ["a.b=1", "c=2", "d=3", "seed=4"]


def test_the_wilson_interval_is_the_textbook_one() -> None:
    low, high = wilson(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)  # 8 of 10, z = 1.96
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == 1.0
