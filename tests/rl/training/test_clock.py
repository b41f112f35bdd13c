"""Seconds by phase: every second counts once, and the parts are the whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_fixtures import small

from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.phases import BLOCKS, blocks
from crbc_rl.training.clock import Clock, finished


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_an_inner_phase_pauses_the_outer_one() -> None:
    now = Hands()
    clock = Clock(now)
    now.at += 1
    with clock.phase("train"):
        now.at += 2
        with clock.phase("tensors"):
            now.at += 4
            with clock.phase("train"):
                now.at += 8
        now.at += 16
    now.at += 32
    with clock.phase("tensors"):
        now.at += 64
    assert clock.take() == {"other": 33, "train": 26, "tensors": 68, "update": 127}
    now.at += 5
    assert clock.take() == {"other": 5, "update": 5}


def test_a_phase_that_fails_is_over() -> None:
    now = Hands()
    clock = Clock(now)

    def save() -> None:
        with clock.phase("save"):
            now.at += 3
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        save()
    now.at += 1
    assert clock.take() == {"save": 3, "other": 1, "update": 4}


def test_a_phase_may_be_open_while_the_seconds_are_taken() -> None:
    now = Hands()
    clock = Clock(now)
    with clock.phase("eval"):
        now.at += 3
        assert clock.take() == {"other": 0, "eval": 3, "update": 3}
        now.at += 2
    assert clock.take() == {"eval": 2, "other": 0, "update": 2}


def test_a_gpu_has_done_its_work_before_the_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    finished(torch.device("cpu"))()
    assert not waited
    finished(torch.device("cuda", 1))()
    assert waited == [torch.device("cuda", 1)]


CONFIGS: dict[str, dict[str, Any]] = {
    "crbc": {},
    "grpo": {"credit": {"method": "grpo"}},
    "critic": {"credit": {"method": "gae"}},
    "an engine of its own": {"policy": {"precision": "bfloat16"}},
}
ALWAYS = {"reset", "generate", "environments", "tensors", "reference", "train", "weights", "figures", "save", "other"}
MORE = {
    "crbc": {"group_advantage", "step_credit"},
    "grpo": {"group_advantage", "step_credit"},  # the process that the figures need is made in any case
    "critic": {"step_credit", "values", "critic"},
    "an engine of its own": {"group_advantage", "step_credit", "old"},
}


@pytest.mark.parametrize("which", CONFIGS)
def test_the_phases_of_an_update_add_up_to_it(model: Path, tmp_path: Path, which: str) -> None:
    """On a clock that moves by one with every look at it, so that the sum is exact."""
    ticks: Callable[[], int] = count().__next__
    config = small(model, updates=2, loss={"kl": 0.01}, **CONFIGS[which])
    learner = Learner(config, Run.start(tmp_path, config, resume=False))
    learner.clock._now = ticks
    learner.clock.take()
    learner.train()
    records = read_metrics(tmp_path)
    for record in records:
        seconds = {key.partition("/")[2]: value for key, value in record.items() if key.startswith("seconds/")}
        whole = seconds.pop("update")
        assert sum(seconds.values()) == whole > 0
        assert sum(blocks(record).values()) == whole
        assert set(seconds) <= {phase for phases in BLOCKS.values() for phase in phases}
        if record["update"] == 1:
            assert set(seconds) == ALWAYS | MORE[which]
