"""Tracking: each update is sent once, whatever ends a run, and a tracker that fails loses nothing of it.

The trackers themselves are tried in tests_tracking.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from learner_fixtures import small

from crbc_lab.plan import findings
from crbc_lab.plan.check import check_run
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.runs import tracking
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metric_writers import Board
from crbc_rl.runs.metrics import Metrics, read_metrics
from crbc_rl.runs.tracking import Tracker, read_state


class Service:
    """What a tracker was told, over all its sessions."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str]] = []
        self.settings: Mapping[str, Any] = {}
        self.sent: list[tuple[int, dict[str, float]]] = []
        self.closed = 0
        self.fault: Exception | None = None

    def open(self, folder: Path, name: str, group: str, settings: Mapping[str, Any]) -> Board:
        self.opened.append((name, group))
        self.settings = settings
        return Session(self)


class Session(Board):
    def __init__(self, service: Service) -> None:
        self.service = service

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        if self.service.fault is not None:
            raise self.service.fault
        self.service.sent.append((update, dict(scalars)))

    def close(self) -> None:
        self.service.closed += 1


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()
    monkeypatch.setattr(tracking, "Wandb", found.open)
    return found


def play(folder: Path, updates: range, upto: int = -1) -> None:
    """A session of a run: the records of some updates, after `upto` of an earlier one."""
    metrics = Metrics(folder, upto, [Tracker(folder, "group", {"seed": 0})])
    for update in updates:
        metrics.write({"update": update, "success": update / 10, "loss": float("nan")})
    metrics.close()


def test_a_resumed_run_is_the_same_run_and_sends_each_update_once(service: Service, tmp_path: Path) -> None:
    play(tmp_path, range(4))
    play(tmp_path, range(2, 6), upto=1)  # its checkpoint was older than its last record
    assert [update for update, _ in service.sent] == [0, 1, 2, 3, 4, 5]
    assert service.sent[3] == (3, {"rollout/success": 0.3})  # under TensorBoard's tag, without what is no number
    assert service.opened == [(read_state(tmp_path)["id"], "group")] * 2
    assert service.closed == 2


def test_a_tracker_that_is_chosen_later_gets_the_whole_run(service: Service, tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, -1)
    for update in range(3):
        metrics.write({"update": update, "success": 0.0})
    metrics.close()
    play(tmp_path, range(0), upto=2)  # a run that is over
    assert [update for update, _ in service.sent] == [0, 1, 2]
    play(tmp_path, range(0), upto=2)
    assert len(service.opened) == 1  # there was nothing to send


def test_a_start_that_fails_before_its_first_record_opens_nothing(service: Service, tmp_path: Path) -> None:
    play(tmp_path, range(0))
    assert not service.opened and not list(tmp_path.iterdir())


@pytest.mark.parametrize("fault", [OSError(28, "No space left"), ValueError("no")])
def test_a_tracker_that_fails_warns_once_and_the_run_goes_on(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    service.fault = fault
    with caplog.at_level(logging.WARNING):
        play(tmp_path, range(3))
    assert [record["update"] for record in read_metrics(tmp_path)] == [0, 1, 2]
    assert len(caplog.records) == 1 and "wandb failed, and the run goes on without it" in caplog.text
    service.fault = None
    play(tmp_path, range(3, 5), upto=2)
    assert [update for update, _ in service.sent] == [1, 2, 3, 4]  # all but the one that failed


@pytest.mark.parametrize("text", ["", "[]", '{"id": "../../x"}', '{"id": "0123abcd", "wandb": "7"}', "{"])
def test_a_damaged_state_makes_a_new_run(
    service: Service, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / tracking.FILE).write_text(text)
    play(tmp_path, range(1))
    assert "tracking.json is damaged" in caplog.text
    assert len(service.sent) == 1 and json.loads((tmp_path / tracking.FILE).read_text())["wandb"] == 0


def test_a_trained_run_is_tracked_with_its_config(service: Service, model: Path, tmp_path: Path) -> None:
    config = small(model, updates=1, tracking="wandb")
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    assert [update for update, _ in service.sent] == [0, 1]
    assert {"rollout/success", "test/success", "seconds/train"} <= service.sent[1][1].keys()
    assert service.settings["optim"]["lr"] == 1e-3
    assert service.settings["model"] == model.name  # no place on this machine
    assert str(tmp_path) not in json.dumps(service.settings)


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "version", lambda name: None)
    with pytest.raises(ConfigError, match=r"wandb: .*\[wandb\]"):
        check_run(small(model, tracking="wandb")).require()
