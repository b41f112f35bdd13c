"""PPO's critic: what it is taught, and that it learns and goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from critic_fixtures import BATCH, ppo
from tables import by_turn

from crbc_rl.distributed import Distributed
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.critic import Critic


def test_returns_are_the_outcome_and_advantages_are_whitened(model: Path) -> None:
    batch = Critic(ppo(model), Distributed()).credit(BATCH)
    assert by_turn(batch, batch.returns) == [[10.0] * 3, [10.0], [0.0] * 2]
    assert by_turn(batch, batch.value) == [[0.0] * 3, [0.0], [0.0] * 2]  # a fresh critic says nothing
    gains = batch.token_advantage
    assert gains.mean() == pytest.approx(0.0, abs=1e-9)
    assert gains.std(ddof=1) == pytest.approx(1.0)
    assert gains[0] > 0 > gains[-1]


def test_it_learns_the_outcome(model: Path) -> None:
    critic = Critic(ppo(model), Distributed())
    for _ in range(60):
        critic.optimise(critic.credit(BATCH), np.random.default_rng(0))
    values = by_turn(BATCH, critic.forward_no_grad(BATCH, critic.values))
    assert np.mean(values[0]) > 7
    assert abs(np.mean(values[2])) < 3


def test_it_goes_on_from_a_checkpoint_to_the_same_bytes(model: Path, tmp_path: Path) -> None:
    critic = Critic(ppo(model), Distributed())
    critic.optimise(critic.credit(BATCH), np.random.default_rng(0))
    critic.save(tmp_path)
    again = Critic(ppo(model), Distributed(), tmp_path)
    for _ in range(2):
        for one, other in zip(critic.named, again.named, strict=True):
            assert torch.equal(one[1], other[1]), one[0]
        for each in (critic, again):
            each.optimise(each.credit(BATCH), np.random.default_rng(1))


@pytest.mark.slow
def test_ppo_trains_and_a_stopped_run_resumes_to_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name, updates in (("whole", 4), ("cut", 2)):
        config = ppo(model, updates=updates)
        Learner(config, Run.start(tmp_path / name, config, resume=False)).train()
    config = ppo(model)
    Learner(config, Run.start(tmp_path / "cut", config, resume=True)).train()
    records = [[r["value_loss"] for r in read_metrics(tmp_path / name) if r["update"] > 2] for name in ("whole", "cut")]
    assert records[0] == records[1] and len(records[0]) == 2
    critics = [Critic(ppo(model), Distributed(), tmp_path / name / "checkpoints/000004") for name in ("whole", "cut")]
    for one, other in zip(*(critic.named for critic in critics), strict=True):
        assert torch.equal(one[1], other[1]), one[0]
