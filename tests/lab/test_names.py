"""Names of configs, runs and warm starts, and mistakes that are told before torch is imported."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from refusals import refusal
from rich.console import Console

from crbc_lab.commands import doctor
from crbc_lab.commands.play import play
from crbc_rl import names
from crbc_rl.errors import ConfigError
from crbc_rl.names import Found, find

HEAVY = ("torch", "transformers", "scipy.stats")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run by the name `mine`, a model folder and a config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.yaml").write_text("name: mine\n")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    (tmp_path / "own.yaml").write_text("name: own\n")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "kinds", "found"),
    [
        ("own.yaml", ("config",), Found("config", Path("own.yaml"))),
        ("mine", ("config", "run"), Found("run", Path("runs/mine"))),
        ("runs/mine", ("run",), Found("run", Path("runs/mine"))),
        ("weights", ("run", "model"), Found("model", Path("weights"))),
        ("sokoban_tiny", ("run", "config", "model"), Found("config", ROOT / "configs/sokoban_tiny.yaml")),
        ("sokoban-tiny", ("model", "config"), Found("model", ROOT / "warmstarts/sokoban-tiny")),
    ],
)
def test_one_grammar_of_names(place: Path, given: str, kinds: tuple[names.Kind, ...], found: Found) -> None:
    assert find(Path(given), *kinds) == found


@pytest.mark.parametrize(
    ("given", "kinds", "message"),
    [
        ("mnie", ("run",), "no run folder 'mnie': .*did you mean 'mine'"),
        ("sokban-tiny", ("run", "config"), "did you mean 'sokoban-tiny'"),
        ("configs/sokoban_tiny.yaml", ("config",), "did you mean 'sokoban-tiny', which comes with crbc"),
        ("onw.yaml", ("config",), "onw.yaml: No such file or folder; did you mean 'own.yaml'"),
        ("weights", ("config", "run"), "weights is a model folder; name a config"),
    ],
)
def test_a_wrong_name_is_told_with_the_nearest(
    place: Path, given: str, kinds: tuple[names.Kind, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        find(Path(given), *kinds)


TOLD_EARLY = (
    *("eval nowhere", "train nowhere", "report nowhere", "agents nowhere", "serve model nowhere"),
    *("warmstart nowhere", "play nowhere", "study agent nowhere", "eval sokoban-tiny --set x=y"),
    *("study list", "study nope", "doctor"),
)


def test_it_is_told_before_heavy_packages_are_imported(tmp_path: Path) -> None:
    code = f"""
import sys
from crbc_lab import cli
for words in {TOLD_EARLY!r}:
    try:
        cli.main(words.split())
    except SystemExit:
        pass
    if heavy := [name for name in {HEAVY!r} if name in sys.modules]:
        sys.exit(f"{{words}} imports {{heavy}}")
"""
    env = {"PYTHONPATH": str(ROOT), "PATH": "/nonexistent"}  # no driver of a GPU, which doctor would ask torch about
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report x --set a=b", "Unrecognized options: --set, a=b; for its options"),
        ("play CRBC-FrozenLake-v0 slippery=true", "to set a value: --set slippery=true"),
        ("warmstart warmstart-sokoban --set x=y", "with --set: unknown key 'x'"),
        ("train sokoban-tiny --seeds 0,0", "'0,0' names the seed 0 twice"),
        ("train sokoban-tiny --set model=/etc --dry-run", "/etc is a folder without a transformers checkpoint"),
        ("eval sokoban-tiny --policy best", "--policy best: sokoban-tiny is no run folder"),
        ("study nope", "no study 'nope'; known: agent,"),
        ("play sokbn-tiny", "did you mean 'sokoban-tiny'"),
    ],
)
def test_a_mistake_names_what_helps(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    assert message in refusal(capsys, *words.split())


def played(given: str, *settings: str) -> str:
    out = io.StringIO()
    play(given, "train", 0, 0, Console(file=out, width=200), lambda _: "quit", settings)
    return out.getvalue()


def test_play_takes_options_of_the_environment_and_names_of_configs() -> None:
    assert played("CRBC-Sokoban-v0", "observation=text") == played("CRBC-Sokoban-v0")
    assert played("CRBC-Sokoban-v0", "height=9") != played("CRBC-Sokoban-v0")
    assert played("sokoban-tiny") == played("CRBC-Sokoban-v0", "panel=v3")
    with pytest.raises(ConfigError, match="slipry"):
        played("CRBC-FrozenLake-v0", "slipry=true")


@pytest.mark.slow
def test_a_shipped_config_and_a_warm_start_are_evaluated_alike(capsys: pytest.CaptureFixture[str]) -> None:
    from crbc_lab import cli

    shown = []
    for given in ("sokoban-tiny", str(ROOT / "warmstarts/sokoban-tiny")):
        cli.main(["eval", given, "--episodes", "4"])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and shown[0].startswith("start: success")


# ---- doctor -----------------------------------------------------------------------------------------


def test_a_cuda_build_without_a_gpu_is_told_with_the_command_for_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert doctor.torch_build() in ("cpu", "cuda", "hip")
    monkeypatch.setattr(doctor, "DRIVERS", ())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor, "torch_build", lambda: "cuda")
    told = next(finding for finding in doctor._processors() if finding.fix)
    assert told.optional and "CUDA build" in told.state and told.fix.endswith("whl/cpu")
    monkeypatch.setattr(doctor, "torch_build", lambda: "cpu")
    assert not [finding for finding in doctor._processors() if finding.fix]
