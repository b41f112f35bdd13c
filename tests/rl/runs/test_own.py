"""What a run's folder may hold, if somebody else made it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crbc_envs.errors import DataError
from crbc_rl.runs.own import clear_leftovers, require_own, was_locked


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "best", "tensorboard"])
def test_training_writes_through_no_link(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    require_own(tmp_path)
    path.symlink_to("/nowhere")
    for follow in (False, True):  # it would make a folder there
        with pytest.raises(DataError, match=f"{name} is a link to /nowhere"):
            require_own(tmp_path, follow)
    path.unlink()
    path.write_text("{}")
    require_own(tmp_path)


def test_folders_on_another_disk_are_written_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "rollouts").symlink_to("disk")
    with pytest.raises(DataError, match="rollouts is a link to disk: add --follow-links to write there, or remove it"):
        require_own(tmp_path)
    require_own(tmp_path, follow_links=True)
    (tmp_path / "metrics.jsonl").symlink_to("file")  # a file would be replaced, or somebody's would grow
    with pytest.raises(DataError, match="metrics.jsonl is a link to file"):
        require_own(tmp_path, follow_links=True)


def test_the_folder_and_other_files_in_it_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    (tmp_path / "run/notes").symlink_to(tmp_path)
    (tmp_path / "run/checkpoints").mkdir()
    (tmp_path / "run/checkpoints/latest").symlink_to("000005")  # people's own, which training never writes
    require_own(tmp_path / "run")
    require_own(tmp_path / "missing")


def test_only_what_replacing_leaves_is_cleared(tmp_path: Path) -> None:
    ours = [".metrics.jsonl.0123456789abcdef.tmp", "rollouts/.000010.parquet.0123456789abcdef.tmp"]
    others = [".notes.0123456789abcdef.tmp", ".metrics.jsonl.tmp", ".report.html.0123456789abcdef.tmp", "a.tmp"]
    (tmp_path / "rollouts").mkdir()
    for name in (*ours, *others):
        (tmp_path / name).write_text("")
    for name in (".model.abcd_123.tmp", "checkpoints/.000007.abcdef_1.tmp", "best/.000007.abcdef_1.tmp"):
        (tmp_path / name / "new").mkdir(parents=True)
    clear_leftovers(tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {*others, "rollouts", "checkpoints", "best"}


def test_a_lock_of_another_program_makes_no_run(tmp_path: Path) -> None:
    for text, ours in (("pid 7 on host, since then\n", True), ("", True), ("4711", False), ("pid 7" * 200, False)):
        (tmp_path / ".lock").write_text(text)
        assert was_locked(tmp_path) is ours
    (tmp_path / ".lock").unlink()
    assert not was_locked(tmp_path) and not was_locked(tmp_path / "missing")
    os.mkfifo(tmp_path / ".lock")
    assert not was_locked(tmp_path)
