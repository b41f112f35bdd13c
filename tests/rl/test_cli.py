import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from learner_fixtures import write_config
from paths import ROOT

from anchors import Rollout, Step
from crbc_rl import cli, config
from crbc_rl.commands import data
from crbc_rl.errors import ConfigError
from crbc_rl.policies.load import load_policy
from crbc_rl.rollout.evaluate import reward_by_step, wilson


def _crbc(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crbc_rl.cli", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_looking_at_runs_waits_for_no_torch() -> None:
    code = "import sys, crbc_rl.studies.comparison.run, crbc_rl.commands.compare, crbc_rl.commands.replay\n"
    code += "import crbc_rl.report.content\n"
    code += "sys.exit(bool({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_train_eval_and_report_from_the_command_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command in a process of its own, the others in this one."""
    config = write_config(tmp_path / "c.yaml", model, updates=2)
    train = ("train", str(config), "--run", "r", "--seed", "5", "--set", "credit.crbc.w_step=2")
    done = _crbc(*train, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "update   2" in done.stdout and "warm start" in done.stdout and "95 % interval" in done.stdout
    assert (tmp_path / "r/report.html").stat().st_size > 10_000

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", str(config), "--run", "r"])
    assert ended.value.code == 2 and "already holds a run" in capsys.readouterr().err
    cli.main([*train, "--resume"])
    assert "trained" in capsys.readouterr().out
    cli.main(["eval", "r", "--policy", "best", "--episodes", "5"])
    assert "5 test tasks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("train", "nowhere.yaml"), "nowhere.yaml: No such file"),
        (
            ("train", "sokoban-tny"),
            "no config 'sokoban-tny': no such file, and none of that name comes with crbc; did you",
        ),
        (("eval", "nowhere"), "nowhere is no run folder"),
        (("report", "nowhere"), "nowhere"),
        (
            ("play", "CRBC-Nowhere-v0"),
            "no environment 'CRBC-Nowhere-v0'; known: CRBC-ALFWorld-v0",
        ),
        (("warmstart", "nowhere.yaml"), "nowhere.yaml: No such file"),
        (("train", "odd[bold]name.yaml"), "odd[bold]name.yaml: No such file"),
    ],
)
def test_a_mistake_is_one_line_and_status_two(
    args: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_info:
        cli.main(list(args))
    assert exit_info.value.code == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and not shown.out


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
        cli.main(["train", "some.yaml", *given, "--seed", "4"])
    assert seen == ["a.b=1", "c=2", "d=3", "seed=4"]


def test_sources_of_data_add_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(data, "install_or_verify", lambda name, sources, console: seen.extend(sources))
    cli.main(["data", "alfworld", "--from", "games.zip", "--from", "trajectories.zip"])
    assert seen == [Path("games.zip"), Path("trajectories.zip")]


@pytest.mark.full
def test_the_shortened_warm_start_runs(tmp_path: Path) -> None:
    config = ROOT / "configs" / "warmstart_sokoban.yaml"
    done = _crbc("warmstart", str(config), "--steps", "3", "--out", str(tmp_path / "w"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policy = load_policy(tmp_path / "w")
    assert 500_000 < sum(p.numel() for p in policy.model.parameters()) < 1_500_000
    assert (tmp_path / "w/warmstart.json").is_file()


def test_the_wilson_interval_is_the_textbook_one() -> None:
    low, high = wilson(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)  # 8 of 10, z = 1.96
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == 1.0


def test_by_step_a_long_rollout_weighs_more():
    won = Rollout([Step("a", "up", reward=10.9)], success=True)
    lost = Rollout([Step("a", "up", reward=-0.1)] * 15, success=False, truncated=True)
    rows = [won.reward] * 1 + [lost.reward] * 15  # one row per step, as step-based trainers keep them

    def told(*rollouts: Rollout) -> float:
        return reward_by_step(np.array([len(r) for r in rollouts]), np.array([r.reward for r in rollouts]))

    assert told(won, lost) == pytest.approx(sum(rows) / 16)
    assert told(won, won) == pytest.approx(10.9)
