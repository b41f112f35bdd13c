"""What honest users do with run folders and configs: links of their own, another disk, read-only places, pipes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from learner_fixtures import small_config

from crbc_envs.errors import DataError
from crbc_lab import cli, write_report
from crbc_rl.config import load_config, parse_config
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run


def test_a_run_with_folders_on_another_disk_and_links_of_its_user(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, folder = tmp_path / "disk", tmp_path / "run"
    for name in ("rollouts", "tensorboard"):
        (disk / name).mkdir(parents=True)
    folder.mkdir()
    (folder / ".lock").touch()  # a run was begun here, and its user moved two folders to another disk
    for name in ("rollouts", "tensorboard"):
        (folder / name).symlink_to(disk / name)
    config = parse_config(small_config(model, updates=1, record_every=1, save_every=1), "test config")
    with pytest.raises(DataError, match="rollouts is a link to .*: add --follow-links to write there, or remove it"):
        Run.start(folder, config, resume=False)
    Learner(config, Run.start(folder, config, resume=False, follow_links=True)).train()
    assert (disk / "rollouts/000001.parquet").is_file() and len(list((disk / "tensorboard").iterdir())) == 1

    (folder / "checkpoints/latest").symlink_to("000001")
    assert Run.open(folder).policy_folder("last") == folder / "checkpoints/000001"
    more = config.model_copy(update={"updates": 2})
    with pytest.raises(DataError, match="add --follow-links"):
        Run.start(folder, more, resume=True)
    Learner(more, Run.start(folder, more, resume=True, follow_links=True)).train()
    assert (folder / "checkpoints/latest").is_symlink() and (disk / "rollouts/000002.parquet").is_file()

    def read_only(path: Path, content: bytes) -> None:
        if path.is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        path.write_bytes(content)

    plain = write_report(folder).read_bytes()
    monkeypatch.setattr("crbc_envs.storage.files.replace_file", read_only)
    with pytest.raises(ConfigError, match=r"run cannot be written \(Read-only file system\): add --out FILE"):
        write_report(folder)
    cli.main(["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").read_bytes() == plain
    assert capsys.readouterr().out.split() == [str(tmp_path / "page.html")]


@contextmanager
def written(pipe: Path, text: str) -> Iterator[Path]:
    """A named pipe into which somebody writes, as `<(command)` of a shell is one."""

    def write() -> None:
        with suppress(BrokenPipeError):  # its reader has had enough
            pipe.write_text(text)

    os.mkfifo(pipe)
    writer = threading.Thread(target=write)
    writer.start()
    yield pipe
    writer.join()


def test_a_config_may_come_through_a_pipe_and_keep_what_it_refers_to(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    data = {**small_config(Path(model.name)), "seed": 3}
    kept = yaml.safe_dump({name: value for name, value in data.items() if name != "optim"})
    text = f"defaults: &d\n  minibatch: 8\n  lr: 0.001\n{kept}optim: {{<<: *d, epochs: 2}}\n"
    with written(tmp_path / "pipe", text) as pipe:
        config = load_config(pipe)
    assert (config.optim.minibatch, config.optim.lr, config.optim.epochs, config.seed) == (8, 0.001, 2, 3)
    assert config.model == str(model)  # from the current folder: a pipe has none
    (tmp_path / "c.yaml").write_text("defaults: 3\n" + yaml.safe_dump(data))
    with pytest.raises(ConfigError, match="unknown key 'defaults'"):  # only where it holds something
        load_config(tmp_path / "c.yaml")
