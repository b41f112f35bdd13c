"""Checkpoints that are damaged, missing or cannot be written."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy, small, without_times
from safetensors.torch import save_file

from crbc_envs.errors import DataError
from crbc_envs.storage.files import WriteErrors
from crbc_rl.credit.metrics import Slope
from crbc_rl.credit.trust import MEMORY
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.model import ORIGIN
from crbc_rl.training import files
from crbc_rl.training.checkpoint import restore_weights
from crbc_rl.training.files import MANIFEST
from crbc_rl.training.folders import newest, publish, published

TINY = {"save_every": 1, "updates": 2, "env": {"kwargs": {"observation": "text", "max_steps": 2}}}


def write(place: Path) -> None:
    (place / "weights").write_bytes(bytes(range(256)))
    (place / "sub").mkdir()
    (place / "sub" / "state").write_text("state")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "flipped": flip,
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["weights", "sub/state"])
def test_a_damaged_checkpoint_is_passed_over_and_said(
    tmp_path: Path, name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for update in (1, 2):
        publish(tmp_path, update, write, keep=2)
    assert newest(tmp_path) == tmp_path / "000002"
    assert not caplog.records
    DAMAGES[how](tmp_path / "000002" / name)
    assert newest(tmp_path) == tmp_path / "000001"
    assert f"000002 ({name} is {'missing' if how == 'missing' else 'damaged'}); going on with 000001" in caplog.text
    DAMAGES[how](tmp_path / "000001" / name)
    with pytest.raises(ConfigError, match="no undamaged checkpoint: 000002.*000001.*crbc train CONFIG --run DIR"):
        newest(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_damaged_manifest_is_a_damaged_checkpoint(tmp_path: Path, content: bytes) -> None:
    for update in (1, 2):
        publish(tmp_path, update, write, keep=2)
    (tmp_path / "000002" / MANIFEST).write_bytes(content)
    assert newest(tmp_path) == tmp_path / "000001"


def test_training_that_went_back_replaces_what_lies_ahead(tmp_path: Path) -> None:
    for update in (1, 2, 4):
        publish(tmp_path, update, write, keep=2)
    publish(tmp_path, 3, write, keep=2)
    assert [place.name for place in published(tmp_path)] == ["000002", "000003"]
    publish(tmp_path, 4, write, keep=2)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["000003", "000004"]


# ---- what is ours ----------------------------------------------------------------------------


def test_only_published_checkpoints_are_ever_deleted(tmp_path: Path) -> None:
    publish(tmp_path, 1, write, keep=1)
    for name in ("000001-paper-result", "000009"):  # copies, which say that they are of update 1
        shutil.copytree(tmp_path / "000001", tmp_path / name)
    for name in ("2019", "000004", ".notes.tmp", ".000004.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("years of work")
    (tmp_path / "000005").symlink_to(tmp_path / "2019")
    others = {path.name for path in tmp_path.iterdir()} - {"000001"}
    assert [place.name for place in published(tmp_path)] == ["000001"]
    publish(tmp_path, 2, write, keep=1)
    assert {path.name for path in tmp_path.iterdir()} == {*others, "000002"}


def test_what_is_in_the_way_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "000002").mkdir()
    (tmp_path / "000002/notes.txt").write_text("years of work")
    publish(tmp_path, 2, write, keep=1)
    assert newest(tmp_path) == tmp_path / "000002"
    assert [path.parent.name[:11] for path in tmp_path.rglob("notes.txt")] == ["000002-kept"]
    assert "has no mark of a checkpoint; it is kept as" in caplog.text


def test_a_checkpoint_that_is_a_link_is_not_written_through_and_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "000001").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "latest").symlink_to("000001")
    with pytest.raises(DataError, match="000001 is a link to"):
        publish(tmp_path, 1, write, keep=1)
    publish(tmp_path, 2, write, keep=1)
    assert not list((tmp_path / "elsewhere").iterdir()) and (tmp_path / "latest").is_symlink()


@pytest.mark.parametrize("name", ["../outside", "/dev/zero", "link"])
def test_a_manifest_names_files_of_its_folder_alone(tmp_path: Path, name: str) -> None:
    place = publish(tmp_path, 1, write, keep=1)
    (tmp_path / "outside").write_text("secret")
    (place / "link").symlink_to(tmp_path / "outside")
    (place / MANIFEST).write_text(json.dumps({"sha256": {name: "0" * 64}}))
    assert str(files.damage(place)).startswith("manifest.json names ")


def test_weights_are_those_of_the_model_or_one_line(tmp_path: Path) -> None:
    first, second, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
    for layer, value in ((first, 1.0), (second, 2.0), (other, 3.0)):
        layer.register_buffer("kept", torch.tensor(value))
        layer.register_buffer("made anew", torch.tensor(value), persistent=False)
    path = tmp_path / "weights.safetensors"
    save_file(first.state_dict(), path)
    restore_weights(path, second)
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias) and second.kept == 1.0
    with pytest.raises(ConfigError, match="its weights are not those of the model"):
        restore_weights(path, other)
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ConfigError, match="cannot be read"):
        restore_weights(path, second)
    with pytest.raises(ConfigError, match="cannot be read"):
        restore_weights(tmp_path / "missing.safetensors", second)


# ---- a whole run -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "whole"
    Learner(small(model, **TINY), Run.start(folder, small(model, **TINY), resume=False)).train()
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def same(a: Path, b: Path) -> bool:
    """Whether two runs have equal metrics, but for seconds, and equal last checkpoints."""
    figures = [without_times(read_metrics(run)) for run in (a, b)]
    digests = [files.read_manifest(run / "checkpoints/000002") for run in (a, b)]
    return figures[0] == figures[1] and digests[0] == digests[1] is not None


@pytest.mark.parametrize("links", [True, False])
def test_no_model_is_written_twice_and_none_before_training(
    model: Path, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before training the best policy and the checkpoint are the run's own copy of the initial model. They are hard
    links; where the file system has none, copies."""
    written: list[str] = []
    save = TransformersPolicy.save
    monkeypatch.setattr(
        TransformersPolicy, "save", lambda self, folder, main: written.append(str(folder)) or save(self, folder, main)
    )
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    shutil.copytree(model, tmp_path / "model")
    for name in ("warmstart.json", "words.json", "merged.json", "adapters.safetensors"):  # of another run's model
        (tmp_path / "model" / name).write_bytes(b"{}")
    config = small(tmp_path / "model", **TINY | {"updates": 1, "policy": {"lora_rank": 2}})
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    run = tmp_path / "run"
    assert not {path.name for path in run.glob("best/*/*")} & ORIGIN
    assert (run / "checkpoints/000000/adapters.safetensors").stat().st_size > 2, "its own"
    assert len(written) == 1, "of update 1"
    places = [run / "model", *run.glob("best/*"), *run.glob("checkpoints/*")]
    initial = [place for place in places if place.name in ("model", "000000")]
    assert len(initial) == 3 and len(places) == 4
    weights = [place / "model.safetensors" for place in initial]
    assert len({path.read_bytes() for path in weights}) == 1
    assert len({path.stat().st_ino for path in weights}) == (1 if links else 3)
    assert [files.damage(place) for place in places] == [None] * 4
    assert all(Run.open(run).policy(which) for which in ("start", "best", "last"))


def test_a_policy_that_becomes_the_best_is_written_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of that update shares its files."""
    config = small(model, **TINY | {"updates": 1})
    learner = Learner(config, Run.start(tmp_path / "run", config, resume=False))
    monkeypatch.setattr(learner.callback, "record", lambda _: setattr(learner, "best", -math.inf))
    learner.train()
    weights = [tmp_path / f"run/{kind}/000001/model.safetensors" for kind in ("best", "checkpoints")]
    assert weights[0].samefile(weights[1])
    assert weights[0].read_bytes() != (tmp_path / "run/model/model.safetensors").read_bytes()


def refuse(*_: object) -> None:
    raise OSError("no links here")


def test_every_file_of_a_checkpoint_is_in_its_manifest(whole: Path) -> None:
    place = whole / "checkpoints/000002"
    kept = files.read_manifest(place)
    assert kept is not None and {*kept, MANIFEST} == {path.name for path in place.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "trainer.json"} <= set(kept)


def test_a_run_goes_back_behind_a_damaged_checkpoint_to_the_same_bytes(
    model: Path, whole: Path, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(run / "checkpoints/000002/trainer-00000-of-00001.safetensors")
    assert Run.open(run).policy("last")
    assert "going on with 000001 instead" in caplog.text
    learner = Learner(small(model, **TINY), Run.start(run, small(model, **TINY), resume=True))
    assert learner.update == 1
    learner.train()
    assert same(run, whole)


def test_a_damaged_best_policy_is_one_line(run: Path) -> None:
    best = Run.open(run).best()
    assert best is not None
    flip(best / "tokenizer.json")
    with pytest.raises(ConfigError, match=r"tokenizer\.json is damaged: restore it, or .*--policy last"):
        Run.open(run).policy("best")


def test_damaged_lines_are_left_out_and_counted(model: Path, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("metrics.jsonl", "groups.jsonl"):
        first, *lines = (run / name).read_bytes().splitlines(keepends=True)
        (run / name).write_bytes(b"".join([b"\xff" + first[1:], *lines, b'{"update": 9, "gr']))
    assert [record["update"] for record in read_metrics(run)] == [1, 2]
    assert "metrics.jsonl: 1 damaged lines are left out, the first is line 1" in caplog.text
    assert set(Run.open(run).groups()) == {2}
    caplog.clear()
    Learner(small(model, **TINY), Run.start(run, small(model, **TINY), resume=True))
    assert "1 of the 3 records are missing, the first is 0" in caplog.text
    caplog.clear()
    assert [record["update"] for record in read_metrics(run)] == [1, 2]  # the damaged lines are gone
    assert set(Run.open(run).groups()) == {2} and not caplog.records


@pytest.mark.parametrize("group", ['{"rollouts": 3}', "null", '{"task": "t", "rollouts": [{}]}'])
def test_a_damaged_group_is_left_out(run: Path, group: str, caplog: pytest.LogCaptureFixture) -> None:
    with (run / "groups.jsonl").open("a") as file:
        file.write(f'{{"update": 7, "group": {group}}}\n')
    with caplog.at_level(logging.WARNING):
        assert set(Run.open(run).groups()) == {1, 2}
        assert len(Run.open(run).groups()) == 2
    assert "the group of update 7 is damaged" in caplog.text


# ---- a full disk -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_errors_of_writing_name_the_file(error: Exception) -> None:
    with pytest.raises(OSError, match="No space left") as told, WriteErrors(Path("some/file")):
        raise error
    assert told.value.errno == errno.ENOSPC and told.value.filename == "some/file"


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="nothing to do with files"), WriteErrors(Path("some/file")):
        raise ValueError("nothing to do with files")


@pytest.mark.parametrize("fails_at", [1, 3, 9])
def test_a_run_that_cannot_write_goes_on_later_to_the_same_bytes(
    model: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The disk is full from the n-th file on that must reach it."""
    run, config, calls = tmp_path / "run", small(model, **TINY), iter(range(1, 10**6))
    opened = Run.start(run, config, resume=False)
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if next(calls) >= fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device") as told:
            Learner(config, opened).train()
        assert str(told.value.filename).startswith(str(run))
    assert not list(run.rglob("*.tmp"))
    Learner(config, Run.start(run, config, resume=len(read_metrics(run)) > 0)).train()
    assert same(run, whole)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no permission to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves that many bytes free."""
    free = os.statvfs(disk)
    filler = disk / "filler"
    with filler.open("wb") as file:
        for _ in range(max(0, free.f_bavail * free.f_frsize - leave) >> 12):
            file.write(bytes(4096))
    return filler


@pytest.mark.parametrize("leave", [0, 16 << 10])
def test_a_full_disk_is_one_error_and_no_harm(model: Path, whole: Path, small_disk: Path, leave: int) -> None:
    run, config = small_disk / "run", small(model, **TINY, record_every=1)
    learner = Learner(config, Run.start(run, config, resume=False))
    filler = fill(small_disk, leave)
    with pytest.raises(OSError, match="No space left on device") as told:
        learner.train()
    assert str(told.value.filename).startswith(str(run))
    filler.unlink()
    Learner(config, Run.start(run, config, resume=len(read_metrics(run)) > 0)).train()
    assert same(run, whole)


def test_the_slope_of_trusted_anchors_is_in_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_policy().save(tmp_path / "model")
    config = small(tmp_path / "model", updates=2, credit={"method": "crbc", "crbc": {"trust": "slope"}})
    found = Slope(np.ones((3, config.rollout.num_groups)))
    monkeypatch.setattr("crbc_rl.learner.run_calibration", lambda *given: found)
    learner, used = Learner(config, Run.start(tmp_path / "run", config, resume=False)), []
    terms = learner.estimator.terms

    def recorded(*given: Any, trust: Slope, **options: Any) -> Any:
        used.append(trust.sums)
        return terms(*given, trust=trust, **options)

    learner.estimator = SimpleNamespace(terms=recorded)
    learner.train()
    assert used[0].shape == (3, 0)
    np.testing.assert_array_equal(used[1], found.sums, err_msg="credit has the slope of the updates before")
    again = Learner(config, Run.start(tmp_path / "run", config, resume=True))
    np.testing.assert_array_equal(again.trusted.sums, np.append(MEMORY * found.sums, found.sums, axis=1))
    again.close()
