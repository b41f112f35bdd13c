"""The benchmark of mini-batches compares all orders on one update."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import minibatches
from crbc_rl.config import load_config


@pytest.mark.slow
def test_every_order_is_told_on_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    minibatches.main(
        ["--agents", "sokoban_tiny", "--sizes", "64", "--set", "rollout.num_groups=3", "--set", "rollout.group_size=4"]
    )
    lines = capsys.readouterr().out.splitlines()
    rows = {name: next(line for line in lines if line.startswith(f"  {name} ")) for name in minibatches.ORDERS}
    assert rows["spread"].split()[-2] == "0.0%"
    assert all(float(line.split()[-1]) > 0 for line in rows.values())


def test_the_variance_is_relative_to_the_mean() -> None:
    assert minibatches.variance(np.array([[3.0, 0.0], [1.0, 0.0]])) == pytest.approx(1 / 4)


@pytest.mark.slow
def test_a_sketch_keeps_lengths_and_angles_of_gradients(tmp_path: Path) -> None:
    """The gradient of an update, from the sketches of its turns, is as long as the optimizer's."""
    changes = [
        "loss.kl=0",
        "rollout.num_groups=2",
        "rollout.group_size=4",
        "optim.minibatch=1000",
        "optim.grad_clip=1e9",
    ]
    config = load_config(minibatches.CONFIGS / "sokoban_tiny.yaml", changes)
    actor, batch = minibatches.sampled(config, tmp_path / "run")
    turn, gradient = minibatches.sketches(actor, batch)
    (part,) = minibatches.cut(batch, config, "spread", 1000, 0)
    whole = ((part.weights * batch.advantage[part.rows])[:, None] * gradient[turn[part.rows]]).sum(axis=0)
    norm = actor.optimise(batch, np.random.default_rng(0))["grad_norm"]
    assert np.linalg.norm(whole) == pytest.approx(norm, rel=0.1)
