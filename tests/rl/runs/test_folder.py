"""Run folders: one writer at a time, failed starts, moved runs, and settings that cannot be read."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from learner_fixtures import fresh_policy, small

from crbc_envs.sokoban import panels
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.runs.folder import Run, begun, own_model
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.versions import read_versions
from crbc_rl.version import commit

TINY = {"updates": 1, "env": {"kwargs": {"observation": "text", "max_steps": 2}}}

HOLD = """
import sys
from pathlib import Path
from crbc_rl.runs.own import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def train(config: Any, folder: Path, resume: bool = False) -> None:
    Learner(config, Run.start(folder, config, resume)).train()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- one writer ------------------------------------------------------------------------------


def test_a_second_process_is_told_who_writes_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        before = contents(tmp_path)
        for resume in (False, True):
            with pytest.raises(
                ConfigError, match=rf"in use by pid {holder.pid} on .+, since 20\d\d-.+ UTC: wait"
            ) as told:
                Run.start(tmp_path, small(model), resume)
            assert "\n" not in str(told.value)
        assert contents(tmp_path) == before
        holder.kill()
        holder.wait()
    assert f"pid {holder.pid} " in (tmp_path / ".lock").read_text()  # left behind, and no obstacle
    assert Run.start(tmp_path, small(model), resume=False).lock is not None


def test_one_process_may_open_its_run_again_and_others_when_it_let_go(model: Path, tmp_path: Path) -> None:
    first = Run.start(tmp_path, small(model), resume=False)
    second = Run.start(tmp_path, small(model), resume=False)
    assert first.lock is second.lock
    del first, second
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert Run.open(tmp_path).config.name == "small"  # readers need no lock
        other.kill()


# ---- failed starts ---------------------------------------------------------------------------


def test_a_start_that_failed_before_the_first_record_is_started_again(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[:-100])
    config, run = small(broken, **TINY), tmp_path / "run"
    with pytest.raises(ConfigError, match="cannot be read"):
        train(config, run)
    assert not begun(run)
    (broken / "model.safetensors").write_bytes(weights)
    train(config, run)
    assert [record["update"] for record in read_metrics(run)] == [0, 1]


def test_a_start_that_ends_in_the_first_evaluation_may_even_change_its_settings(model: Path, tmp_path: Path) -> None:
    learner = Learner(small(model, **TINY), Run.start(tmp_path, small(model, **TINY), resume=False))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    learner.worker.evaluate = interrupted
    with pytest.raises(KeyboardInterrupt):
        learner.train()
    train(small(model, **{**TINY, "seed": 3}), tmp_path)
    assert Run.open(tmp_path).config.seed == 3
    with pytest.raises(ConfigError, match="already holds a run"):
        Run.start(tmp_path, small(model, **{**TINY, "seed": 3}), resume=False)


# ---- moved runs ------------------------------------------------------------------------------


def test_a_moved_run_evaluates_and_resumes_without_its_first_model(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "warm")
    config = small(tmp_path / "warm", **TINY)
    train(config, tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    shutil.move(tmp_path / "warm", tmp_path / "gone")

    moved = Run.open(tmp_path / "elsewhere")
    first = moved.policy("start").model.state_dict()
    assert all(torch.equal(first[name], value) for name, value in load_policy(model).model.state_dict().items())
    assert str(tmp_path) not in (moved.folder / "config.yaml").read_text()

    longer = config.model_copy(update={"updates": 2})
    assert own_model(moved.folder, longer).model == str(moved.folder / "model")
    train(longer, moved.folder, resume=True)
    assert [record["update"] for record in read_metrics(moved.folder)] == [0, 1, 2]


def test_a_model_is_the_same_wherever_its_files_are_and_no_other(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(small(model, **TINY), tmp_path / "run")
    shutil.copytree(model, tmp_path / "copy")
    (tmp_path / "copy/notes.md").write_text("not a part of the model")
    Run.start(tmp_path / "run", small(tmp_path / "copy", **TINY), resume=True)
    assert not caplog.records
    Run.start(tmp_path / "run", small(tmp_path / "nowhere", **TINY), resume=True)
    assert "goes on with its own copy of the model" in caplog.text
    fresh_policy(1).save(tmp_path / "other")
    for other in (str(tmp_path / "other"), "some/hub-model"):
        config = small(model, **TINY).model_copy(update={"model": other})
        with pytest.raises(ConfigError, match=r"was started with model = .+ differs"):
            Run.start(tmp_path / "run", config, resume=True)


def test_a_changed_copy_of_the_model_is_not_used(model: Path, tmp_path: Path) -> None:
    train(small(model, **TINY), tmp_path)
    with (tmp_path / "model/model.safetensors").open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"x")
    for use in (lambda: Run.open(tmp_path).policy("start"), lambda: Run.start(tmp_path, small(model, **TINY), True)):
        with pytest.raises(ConfigError, match=r"model: model\.safetensors is damaged"):
            use()


# ---- settings that cannot be read ------------------------------------------------------------


def test_a_run_of_another_version_names_both(model: Path, tmp_path: Path) -> None:
    Run.start(tmp_path, small(model), resume=False)
    data = yaml.safe_load((tmp_path / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**data, "telepathy": True}))
    (tmp_path / "versions.json").write_text(json.dumps({"crbc": "9.1"}))
    with pytest.raises(ConfigError, match=r"unknown key 'telepathy'.*made by crbc 9\.1, and this is \d") as told:
        Run.open(tmp_path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("content", [b"", b"name: [", b"\xff\xfe\x00", b"a: 1\n b: {", b"- 1\n"])
def test_a_damaged_config_is_one_line(model: Path, tmp_path: Path, content: bytes) -> None:
    Run.start(tmp_path, small(model), resume=False)
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.yaml") as told:
        Run.open(tmp_path)
    assert "\n" not in str(told.value)


def test_a_cut_or_edited_config_is_noticed(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Run.start(tmp_path, small(model), resume=False)
    text = (tmp_path / "config.yaml").read_text()
    assert not caplog.records
    (tmp_path / "config.yaml").write_text(text[: text.index("eval:")])  # still YAML, with other episodes
    assert Run.open(tmp_path).config.eval.episodes == 128
    assert "config.yaml was changed after the run began" in caplog.text


def test_a_run_with_other_anchors_than_the_environment_makes_is_not_continued(model: Path, tmp_path: Path) -> None:
    config = small(model, **TINY)
    train(config, tmp_path)
    versions = json.loads((tmp_path / "versions.json").read_text())
    assert (versions["anchor"], versions["anchors"]) == ("paper-1", "1")
    longer = config.model_copy(update={"updates": 2})
    for other in ({"anchor": "paper-7"}, {"anchor": "state-1"}, {"anchors": "0"}):
        (tmp_path / "versions.json").write_text(json.dumps(versions | other))
        with pytest.raises(
            ConfigError, match=r"has anchors .*, and the environment now makes paper-1 .*--run DIR"
        ) as no:
            train(longer, tmp_path, resume=True)
        assert "\n" not in str(no.value)
    assert [record["update"] for record in read_metrics(tmp_path)] == [0, 1]


def test_a_run_tells_the_commit_that_it_began_with(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for updates, now in ((1, "first"), (2, "second")):
        monkeypatch.setattr("crbc_rl.runs.folder.commit", lambda now=now: now)
        train(small(model, **{**TINY, "updates": updates}), tmp_path, resume=updates > 1)
    assert read_versions(tmp_path)["commit"] == "first"
    assert Run.open(tmp_path).config.updates == 2, "a run has the updates that it was resumed with"


def test_only_a_clone_has_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*command: str) -> str:
        own = ["-c", "user.name=A", "-c", "user.email=a@b"]
        return subprocess.run(["git", *own, *command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    package = tmp_path / "crbc_rl"
    package.mkdir()
    monkeypatch.setattr("crbc_rl.version.__file__", str(package / "version.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == ""
    (package / "version.py").write_text("")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        git(*command)
    assert commit() == git("rev-parse", "--short=12", "HEAD").strip()
    (package / "version.py").write_text("1")
    assert commit() == git("rev-parse", "--short=12", "HEAD").strip() + "+"
    (package / "shipped").mkdir()
    assert commit() == "", "a repository around an installed package is another project's"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b"[1]"])
def test_damaged_versions_are_said_and_no_obstacle(
    model: Path, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    Run.start(tmp_path, small(model), resume=False)
    (tmp_path / "versions.json").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert Run.open(tmp_path).config.name == "small"
    assert "versions.json is damaged" in caplog.text


# ---- the same tasks ----------------------------------------------------------------------------


def test_a_run_does_not_go_on_with_other_tasks(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(small(model, **TINY), tmp_path)
    before = contents(tmp_path / "checkpoints")
    longer = small(model, **{**TINY, "updates": 2})
    monkeypatch.setattr("crbc_envs.sokoban.panels.VERSION", 99)
    panels._panel_task.cache_clear()
    with pytest.raises(ConfigError, match="was trained on other tasks than CRBC-Sokoban-v0 has now"):
        train(longer, tmp_path, resume=True)
    assert contents(tmp_path / "checkpoints") == before
    monkeypatch.undo()
    panels._panel_task.cache_clear()
    versions = json.loads((tmp_path / "versions.json").read_text())
    (tmp_path / "versions.json").write_text(json.dumps(versions | {"tasks": versions["tasks"] + "0"}))  # ten times more
    with pytest.raises(ConfigError, match="was trained on other tasks"):
        train(longer, tmp_path, resume=True)
    alone, of, count = versions["tasks"].split()
    assert of == "of" and int(count) == len(panels.SokobanPanel("train"))
    (tmp_path / "versions.json").write_text(json.dumps(versions | {"tasks": alone}))  # of an older version
    train(longer, tmp_path, resume=True)
    assert read_metrics(tmp_path)[-1]["update"] == 2


def test_a_run_tells_of_other_data(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, digests = small(model), ["one", "one", "two", None]
    monkeypatch.setattr("crbc_rl.runs.folder.data_digest", lambda _: digests.pop(0))
    Run.start(tmp_path, config, resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    Run.start(tmp_path, config, resume=True)
    assert not caplog.records
    Run.start(tmp_path, config, resume=True)
    said = f"{tmp_path}: the installed data of CRBC-Sokoban-v0 are not those that the run began with"
    Run.start(tmp_path, config, resume=True)  # a copy without a manifest, of which nothing is known
    assert [record.getMessage() for record in caplog.records] == [said]
