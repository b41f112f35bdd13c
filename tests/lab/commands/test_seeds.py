"""`crbc train CONFIG --seeds 0-4`: what it refuses, and several seeds from their start to their table."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from learner_fixtures import small_config, write_config
from refusals import refusal
from rich.console import Console

from crbc_lab.child_runs import ChildRun
from crbc_lab.cli import main
from crbc_lab.commands import parse, seeds
from crbc_rl.config import TrainConfig
from crbc_rl.runs.folder import finished
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.own import LOG, lock


@pytest.mark.parametrize(
    ("text", "wanted"), [("0-4", (0, 1, 2, 3, 4)), ("0,2,5", (0, 2, 5)), ("7", (7,)), ("3-4, 0", (3, 4, 0))]
)
def test_seeds_are_read(text: str, wanted: tuple[int, ...]) -> None:
    assert parse._seeds([text]) == wanted


@pytest.mark.parametrize("text", ["", "a", "4-0", "-1", "0-", "1.5", "0-1000", "0-999,5000", "0--2"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not such as 0-4"):
        parse._seeds([text])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0-x"], "'0-x' is not such as 0-4 or 0,2,5"),
        (["--seeds", "0-1", "--seed", "3"], "--seeds and --seed exclude each other"),
        (["--jobs", "2"], "--jobs belongs to --seeds"),
    ],
)
def test_mistakes_are_told_in_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    config = write_config(tmp_path / "c.yaml", model)
    assert message in refusal(capsys, "train", str(config), *words)


def test_torchrun_and_several_seeds_exclude_each_other(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = ("train", str(write_config(tmp_path / "c.yaml", model)), "--seeds", "0-1")
    assert "--seeds: torchrun starts the processes of one run" in refusal(capsys, *words)


@pytest.fixture
def tiny(model: Path, tmp_path: Path) -> Callable[..., int | str | None]:
    """The command on three seeds; its exit status."""
    data = small_config(model)
    data |= {"updates": 1, "eval": {"every": 1, "episodes": 2, "test_episodes": 2}}
    config = write_config(tmp_path / "c.yaml", model, **{key: data[key] for key in ("updates", "eval")})

    def run(*more: str) -> int | str | None:
        try:
            main(["train", str(config), "--run", str(tmp_path / "runs"), *more])
        except SystemExit as ended:
            return ended.code
        return 0

    return run


@pytest.mark.full
def test_several_seeds_run_and_resume(
    tiny: Callable[..., int | str | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose folder another process uses fails; the others do not, and only it is run again."""
    folders = [tmp_path / f"runs/seed{seed}" for seed in range(3)]
    folders[1].mkdir(parents=True)
    held = lock(folders[1])
    assert tiny("--seeds", "0-2", "--jobs", "2") == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "seed 1: failed with status 2: error:" in told and "is in use by pid" in told
    assert "mean ± sd" in told and "2 seeds" in told
    assert [finished(folder, 1) for folder in folders] == [True, False, True]
    assert not finished(folders[0], 2)

    held.release()
    before = [(folder / "metrics.jsonl").read_bytes() for folder in (folders[0], folders[2])]
    assert tiny("--seeds", "0-2") == 2
    assert "already holds a run: add --resume" in capsys.readouterr().err
    assert tiny("--seeds", "0-2", "--resume") == 0
    assert "2 of them finished before" in " ".join(capsys.readouterr().out.split())
    assert [(folder / "metrics.jsonl").read_bytes() for folder in (folders[0], folders[2])] == before
    assert [record["update"] for record in read_metrics(folders[1])] == [0, 1]
    assert tiny("--seeds", "0-2", "--resume", "--set", "optim.lr=0.5") == 2
    assert "was started with optim.lr" in capsys.readouterr().err


def test_a_mistake_in_the_config_starts_nothing(
    tiny: Callable[..., int | str | None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ChildRun, "start", lambda *told: pytest.fail("nothing may start"))
    assert tiny("--seeds", "0-2", "--set", "eval.test_episodes=100000") == 2
    assert "can never work" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "update 0 of 9: start"),
        ("c  crbc on CRBC-Sokoban-v0\n  start, 9 s\n", "update 0 of 9: start"),
        (
            "  start, 9 s\n  update 0 of 9: test, 2 of 4 episodes, 9 s, about 9 s left\nwarning: slow\n",
            "update 0 of 9: test, 2 of 4 episodes, 9 s, about 9 s left",
        ),
        ("  update 1 of 9: train, 9 s\nupdate 1 of 9  success 0.0%\n", "update 2 of 9"),
        ("update 9 of 9  success 0.0%\n", "update 9 of 9"),
    ],
)
def test_a_line_says_what_each_seed_is_doing(tmp_path: Path, log: str, said: str) -> None:
    children = [ChildRun(f"seed {seed}", TrainConfig(name="c", model="m"), tmp_path / f"{seed}") for seed in range(3)]
    for child in children[:2]:
        child.folder.mkdir()
        (child.folder / LOG).write_text(log)
        child.process = subprocess.Popen(["true"])
        child.process.wait()
    told = seeds._Progress(children, 9, Console(file=io.StringIO()))
    assert told._state() == f"  seed 0: {said}; seed 1: {said}"
