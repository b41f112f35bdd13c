"""Runs of the learner whose rollouts are sampled by vLLM: alone, and in two processes of torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from learner_fixtures import write_config

from crbc_rl.policies.load import load_policy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

MODEL = Path(__file__).resolve().parent.parent / "warmstarts" / "sokoban-tiny"
SETTINGS = {
    "updates": 3,
    "env": {"kwargs": {"observation": "text", "max_steps": 6}},  # in three steps hardly a room is solved
    "rollout": {"num_groups": 4, "group_size": 4, "max_new_tokens": 16, "max_prompt_tokens": 200},
    "optim": {"lr": 1e-3, "minibatch": 64},
    "eval": {"every": 3, "episodes": 4, "test_episodes": 4},
}


def train(folder: Path, processes: int = 1, **generator: object) -> list[dict[str, float]]:
    """A run's records. Raises where it fails."""
    folder.mkdir()
    engine = {"engine": "vllm", "memory": 0.15, **generator}
    config = write_config(folder / "config.yaml", MODEL, **SETTINGS, generator=engine)
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "--"]
    command = [sys.executable, *(several if processes > 1 else ["-m"]), "crbc_lab.cli", "train", str(config)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--run", str(folder / "run")], capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return read_metrics(folder / "run")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = Run.open(folder / "run").last_checkpoint()
    assert checkpoint is not None
    return load_policy(checkpoint).model.state_dict()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, float]]]:
    folder = tmp_path_factory.mktemp("runs") / "alone"
    return folder, train(folder)


def test_every_update_is_sampled_with_the_weights_of_the_one_before(alone: tuple) -> None:
    folder, records = alone
    assert [record["update"] for record in records] == [0, 1, 2, 3]
    for record in records[1:]:
        assert record["mismatch_max"] < 1e-4
        assert 0.0 < record["success"] < 1.0
    before, after = load_policy(MODEL).model.state_dict(), weights(folder)
    moved = max((after[name] - before[name]).abs().max().item() for name in after)
    assert moved > 1e-3


@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_two_processes_train_what_one_does(alone: tuple, tmp_path: Path, tensor_parallel: int) -> None:
    """Each with an engine of its own, and both with one."""
    records = train(tmp_path / "two", processes=2, tensor_parallel=tensor_parallel)
    for one, two in zip(alone[1], records, strict=True):
        assert two.get("mismatch_max", 0.0) < 1e-4
        for name in ("success", "steps", "invalid", "test/success", "entropy", "kl", "grad_norm"):
            expected = pytest.approx(one.get(name, 0.0), rel=1e-2, abs=1e-4)
            assert two.get(name, 0.0) == expected, (one["update"], name)
    mine, theirs = weights(alone[0]), weights(tmp_path / "two")
    apart = max((mine[name] - theirs[name]).abs().max().item() for name in mine)
    print(f"after three updates the weights are {apart:.1e} apart at most")
    assert apart < 2e-3
