"""Several processes train as one does: torchrun with two of them on processors, over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_fixtures import write_config
from safetensors import safe_open
from safetensors.torch import load_file
from vision_fixtures import fresh_vision_policy

from crbc_rl.distributed import World
from crbc_rl.errors import ConfigError
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

TESTS = Path(__file__).parent

SETTINGS = {
    "rollout": {"num_groups": 4, "group_size": 3, "max_new_tokens": 4},
    "optim": {"lr": 1e-4, "minibatch": 64, "microbatch": 8},
    "policy": {"gradient_checkpointing": True},
    "loss": {"entropy": 0.1},  # replies of a fresh policy are all malformed, so there is no credit: a gradient for sure
}


def _run(processes: int, *command: str) -> None:
    if processes > 1:
        several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        split = 2 if command[0] == "-m" else 1
        command = (*several, *command[:split], "--", *command[split:])
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _train(config: Path, run: Path, processes: int, *more: str) -> None:
    _run(processes, "-m", "crbc_rl.cli", "train", str(config), "--run", str(run), *more)


def _figures(run: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in record.items() if not k.startswith("seconds/")} for record in read_metrics(run)]


def _assert_alike(start: Path, one: Path, other: Path) -> None:
    """Equal rollouts and figures, and weights up to what the rounding of sums grows to: Adam makes full steps of
    gradients that are nothing but rounding, such as those of words that are never said."""
    for a, b in zip(_figures(one), _figures(other), strict=True):
        apart = {
            "mismatch",
            "mismatch_max",
            "drift",
            "ratio_max",
        }  # told where another model sampled, or rounding alone
        tolerance = 1e-4 if a["update"] < 2 else 0.1
        for name in (a.keys() | b.keys()) - apart:
            assert a[name] == pytest.approx(b[name], rel=tolerance, abs=1e-3), (a["update"], name)
    runs = [Run.open(run).last_checkpoint() for run in (one, other)]
    before, first, second = (_flat(load_policy(folder)) for folder in (start, *runs))
    assert (first - second).norm() < 0.3 * (first - before).norm()


def _flat(policy: TransformersPolicy) -> torch.Tensor:
    return torch.cat([w.flatten() for n, w in policy.model.named_parameters() if not n.endswith("k_proj.bias")])


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_of_several_processes_are_those_of_one(model: Path, tmp_path: Path, processes: int) -> None:
    for count in (1, processes):
        _run(count, str(TESTS / "world_gradients.py"), str(model), str(tmp_path / f"{count}.safetensors"))
    one, several = (load_file(tmp_path / f"{count}.safetensors") for count in (1, processes))
    scale = max(gradient.abs().max().item() for gradient in one.values())
    assert one.keys() == several.keys() and scale > 1e-3
    for name, gradient in one.items():
        assert torch.allclose(gradient, several[name], atol=1e-5 * scale), name


@pytest.mark.slow
def test_two_processes_train_what_one_does_and_one_goes_on_from_two(model: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", model, **SETTINGS)
    _train(config, tmp_path / "one", 1)
    _train(config, tmp_path / "two", 2)
    _assert_alike(model, tmp_path / "one", tmp_path / "two")

    last = Run.open(tmp_path / "two").last_checkpoint()
    shards = sorted(last.glob("trainer-*.safetensors"))
    assert [shard.name for shard in shards] == [
        "trainer-00000-of-00002.safetensors",
        "trainer-00001-of-00002.safetensors",
    ]
    name = "model.layers.0.mlp.up_proj.weight/exp_avg"
    assert [safe_open(shard, "pt").get_slice(name).get_shape() for shard in shards] == [[192, 128]] * 2

    for run, processes in (("two", 1), ("one", 2)):  # each goes on in the other's number of processes
        _train(config, tmp_path / run, processes, "--resume", "--set", "updates=6")
    _assert_alike(model, tmp_path / "one", tmp_path / "two")


BRIEF = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text", "max_steps": 4}}
IMAGES = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "rgb", "max_steps": 3}, "prompt": "image"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"lora_rank": 4}, "loss": {"entropy": 0.1, "kl": 0.05}},
        {"credit": {"method": "gae"}, "critic": {"lr": 1e-3}, "loss": {"entropy": 0.1}},
        {"env": IMAGES, "loss": {"entropy": 0.1}},
    ],
    ids=["LoRA", "PPO", "frames"],
)
def test_an_update_of_two_processes_is_that_of_one(model: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    """And one goes on with a critic that two left."""
    if "env" in changes:
        fresh_vision_policy().save(tmp_path / "model")
        model = tmp_path / "model"
    policy = {"gradient_checkpointing": True, **changes.get("policy", {})}
    config = write_config(
        tmp_path / "config.yaml", model, **{**SETTINGS, "env": BRIEF, **changes, "policy": policy, "updates": 1}
    )
    _train(config, tmp_path / "one", 1)
    _train(config, tmp_path / "two", 2)
    one, two = (_figures(tmp_path / name)[1] for name in ("one", "two"))
    for name, value in one.items():
        if name not in ("mismatch", "mismatch_max", "drift", "ratio_max"):
            assert two[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    if "critic" in changes:
        _train(config, tmp_path / "two", 1, "--resume", "--set", "updates=2")
        after = _figures(tmp_path / "two")[2]
        assert after["grad_norm"] > 0 and after["value_grad_norm"] > 0
        assert after["drift"] < 1e-4, "it samples as it is trained"


def test_groups_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"5 groups cannot be shared out over 2 processes: make it a multiple"):
        World(rank=0, size=2).share_of(5, "groups")
    assert World(rank=1, size=2).share_of(6, "groups") == range(3, 6)


@pytest.mark.slow
def test_a_reference_in_main_memory_is_the_same_reference(model: Path, tmp_path: Path) -> None:
    for name, offload in (("here", False), ("there", True)):
        changes = {**SETTINGS, "policy": {"precision": "bfloat16", "offload_reference": offload}, "updates": 2}
        _train(write_config(tmp_path / f"{name}.yaml", model, **changes), tmp_path / name, 1)
    here, there = _figures(tmp_path / "here"), _figures(tmp_path / "there")
    assert here == there and here[2]["kl"] > 0


@pytest.mark.slow
def test_passes_in_bfloat16_train_float32_weights(model: Path, tmp_path: Path) -> None:
    changes = {**SETTINGS, "policy": {"precision": "bfloat16"}, "updates": 1}
    _train(write_config(tmp_path / "config.yaml", model, **changes), tmp_path / "run", 1)
    record = _figures(tmp_path / "run")[1]
    assert record["grad_norm"] > 0 and record["skipped"] == 0
    assert 0 < record["mismatch_max"] < 0.2  # another model sampled, in bfloat16 as well
    last = Run.open(tmp_path / "run").last_checkpoint()
    assert {w.dtype for w in load_policy(last).model.parameters()} == {torch.float32}
    with safe_open(last / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float32}  # noqa: SIM118
