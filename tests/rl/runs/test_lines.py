"""Files of JSON lines: what is left out, and what cutting keeps."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from crbc_envs.errors import DataError
from crbc_envs.storage.files import append_line
from crbc_rl.config import TrainConfig
from crbc_rl.runs.folder import Run
from crbc_rl.runs.lines import cut_lines, read_lines
from crbc_rl.runs.metrics import evaluated, read_metrics


def write(path: Path, *texts: str, end: str = "\n") -> Path:
    path.write_text("\n".join(texts) + end)
    return path


@pytest.mark.parametrize("update", ["true", "-1", '"1"'])
def test_a_wrong_update_is_a_damaged_line(tmp_path: Path, update: str, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "f", f'{{"update": {update}}}', '{"update": 999999999}')
    assert [record["update"] for record in read_lines(path)] == [999_999_999]
    assert "1 damaged lines are left out, the first is line 1" in caplog.text


def test_cutting_keeps_bytes_as_they_were(tmp_path: Path) -> None:
    text = ' {"update":0, "a": 1e400}\n{"update": 1}\n'
    path = tmp_path / "f"
    path.write_text(text)
    before = path.stat().st_ino
    assert cut_lines(path, 1) == {0, 1} and path.stat().st_ino == before, "nothing to cut: the file is not touched"
    path.write_text(text + '{"update": 2}\nbad\n{"update": 1, "again": 1}')
    assert cut_lines(path, 1) == {0, 1}
    assert path.read_text() == text + '{"update": 1, "again": 1}\n'
    assert cut_lines(path, -1) == set() and path.read_text() == ""
    assert cut_lines(tmp_path / "missing", 3) == set()


def test_appending_follows_no_link(tmp_path: Path) -> None:
    write(tmp_path / "mine", "years of work")
    (tmp_path / "f").symlink_to(tmp_path / "mine")
    with pytest.raises(DataError, match="is a link to"):
        append_line(tmp_path / "f", {"update": 1})
    assert (tmp_path / "mine").read_text() == "years of work\n"


def test_metrics_are_in_order_once_and_finite(tmp_path: Path) -> None:
    records = ['"update": 3, "kl": 1', '"update": 1, "kl": NaN', '"update": 1, "reward": true, "new": 7']
    write(tmp_path / "metrics.jsonl", *(f"{{{record}}}" for record in records))
    assert read_metrics(tmp_path) == [{"update": 1, "new": 7}, {"update": 3, "kl": 1}]


def test_half_an_evaluation_is_none() -> None:
    whole = {"test/success": 0.5, "test/low": 0.4, "test/high": 0.6, "test/episodes": 10}
    halves = [{key: value for key, value in whole.items() if key != left} for left in whole]
    assert evaluated([*halves, whole], "test") == [whole]
    assert not evaluated([whole], "validation")


def test_damaged_groups_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = ["a", "up", 0.0, "a room"]
    group = {"task": "t", "rollouts": [{"success": True, "truncated": False, "steps": [step]}]}
    wrong = [{**group, "rollouts": []}, {"task": "t"}]
    path = tmp_path / "groups.jsonl"
    with caplog.at_level(logging.WARNING):
        for update, one in enumerate([group, *wrong, group]):
            append_line(path, {"update": update, "group": one})
        groups = Run(tmp_path, TrainConfig.model_construct()).groups()
    assert list(groups) == [0, 3] and len(groups) == 2
    assert groups[3].rollouts[0].steps[0].label == "a room" and groups[0] == groups[3]
    assert "the group of update 1 is damaged and left out: " in caplog.text
