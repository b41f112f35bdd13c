"""PPO's critic: what it is taught, and that it learns and goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from critic_fixtures import ROWS, SAMPLE, ppo

from crbc_rl.distributed import World
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.critic import Critic


def test_returns_are_the_outcome_and_advantages_are_whitened(model: Path) -> None:
    actors, lessons = Critic(ppo(model), World()).credit(ROWS, SAMPLE)
    assert [row.advantage for g in lessons for row in g] == [[10.0] * 3, [10.0], [0.0] * 2]
    assert [row.old for g in lessons for row in g] == [[0.0] * 3, [0.0], [0.0] * 2]  # a fresh critic says nothing
    gains = np.concatenate([row.advantage for g in actors for row in g])
    assert gains.mean() == pytest.approx(0.0, abs=1e-9)
    assert gains.std(ddof=1) == pytest.approx(1.0)
    assert gains[0] > 0 > gains[-1]


def test_it_learns_the_outcome(model: Path) -> None:
    critic = Critic(ppo(model), World())
    rows = [row for g in ROWS for row in g]
    for _ in range(60):
        _, lessons = critic.credit(ROWS, SAMPLE)
        critic.optimise(lessons, np.random.default_rng(0))
    values = critic.read(rows, critic.values)
    assert np.mean(values[0]) > 7
    assert abs(np.mean(values[2])) < 3


def test_gradient_checkpointing_changes_no_value(model: Path) -> None:
    """It is done in training mode alone, in which some heads have dropout."""
    critics = [Critic(ppo(model, policy={"gradient_checkpointing": on}), World()) for on in (False, True)]
    for critic in critics:
        critic.optimise(critic.credit(ROWS, SAMPLE)[1], np.random.default_rng(0))
    plain, checkpointed = (critic.read([row for g in ROWS for row in g], critic.values) for critic in critics)
    assert plain == checkpointed and plain[0] != [0.0] * 3


def test_ppo_trains_and_a_stopped_run_resumes_to_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name, updates in (("whole", 4), ("cut", 2)):
        config = ppo(model, updates=updates)
        Learner(config, Run.start(tmp_path / name, config, resume=False)).train()
    config = ppo(model)
    Learner(config, Run.start(tmp_path / "cut", config, resume=True)).train()
    records = [[r["value_loss"] for r in read_metrics(tmp_path / name) if r["update"] > 2] for name in ("whole", "cut")]
    assert records[0] == records[1] and len(records[0]) == 2
    critics = [Critic(ppo(model), World(), tmp_path / name / "checkpoints/000004") for name in ("whole", "cut")]
    for one, other in zip(*(critic.named for critic in critics), strict=True):
        assert torch.equal(one[1], other[1]), one[0]
