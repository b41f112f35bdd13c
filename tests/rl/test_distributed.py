"""Several processes train as one does: torchrun with two of them on processors, over gloo. One launch does all that two
processes have to do (`several_processes.py`); what one process does, it does here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import several_processes
import torch
from learner_fixtures import without_times, write_config
from paths import ROOT, SUPPORT
from safetensors import safe_open
from safetensors.torch import load_file
from vision_fixtures import fresh_vision_policy

from crbc_lab.interrupts import PATIENT
from crbc_rl.distributed import Distributed
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.files import damage, files_of, read_manifest

SETTINGS = {
    "rollout": {"num_groups": 4, "group_size": 3, "max_new_tokens": 4},
    "optim": {"lr": 1e-4, "minibatch": 64, "microbatch": 8},
    "policy": {"gradient_checkpointing": True},
    "loss": {"entropy": 0.1},  # replies of a fresh policy are all malformed, so there is no credit: a gradient for sure
}
FEW = {"every": 1, "episodes": 2, "test_episodes": 2}
BRIEF = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text", "max_steps": 4}}
IMAGES = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "rgb", "max_steps": 3}, "prompt": "image"}
CHANGES: dict[str, dict[str, Any]] = {
    "LoRA": {"policy": {"lora_rank": 4}, "loss": {"entropy": 0.1, "kl": 0.05}},
    "PPO": {"credit": {"method": "gae"}, "critic": {"lr": 1e-3}, "loss": {"entropy": 0.1}},
    "frames": {"env": IMAGES, "loss": {"entropy": 0.1}},
}
"""What differs from a plain run, each for one update."""

ROUNDING = ("mismatch", "mismatch_max", "drift", "ratio_max")
"""Figures that are measured where another model sampled, or that are rounding alone."""


def launch(processes: int, jobs: list[dict[str, Any]], folder: Path) -> None:
    """Do `jobs` in a group of processes that torchrun starts."""
    file = folder / f"jobs-{processes}.json"
    file.write_text(json.dumps(jobs))
    started = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    path = os.pathsep.join([str(ROOT), str(SUPPORT)])
    done = subprocess.run(
        [sys.executable, *started, str(SUPPORT / "several_processes.py"), str(file)],
        capture_output=True,
        text=True,
        timeout=1200,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def alone(config: Path, run: Path, *sets: str, resume: bool = False) -> None:
    several_processes.train(Distributed(), str(config), str(run), resume, sets)


@pytest.fixture(scope="module")
def played(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Runs of one and of two processes. `one` and `two` are folders by name; "whole" is two updates long, and
    "resumed" goes on to three in the other's number of processes."""
    folder = tmp_path_factory.mktemp("processes")
    one, two = folder / "one", folder / "two"
    one.mkdir()
    two.mkdir()
    fresh_vision_policy().save(folder / "vision")
    configs = {"whole": write_config(folder / "whole.yaml", model, **SETTINGS, updates=2)}
    for name, changes in CHANGES.items():
        policy = {"gradient_checkpointing": True, **changes.get("policy", {})}
        settings = {**SETTINGS, "env": BRIEF, **changes, "policy": policy, "updates": 1, "eval": FEW}
        start = folder / "vision" if name == "frames" else model
        configs[name] = write_config(folder / f"{name}.yaml", start, **settings)
    for name, config in configs.items():
        alone(config, one / name)
    shutil.copytree(one / "whole", one / "resumed")
    more = ["--resume", "--set", "updates=3", "--run", str(one / "resumed")]
    jobs: list[dict[str, Any]] = [
        {"job": "gradients", "model": str(model), "file": str(two / "gradients.safetensors")},
        {"job": "exchange", "file": str(two / "known")},
        *({"job": "train", "config": str(config), "run": str(two / name)} for name, config in configs.items()),
        {"job": "command", "arguments": ["train", str(configs["whole"]), *more]},
    ]
    launch(2, jobs, folder)
    shutil.copytree(two / "whole", two / "resumed")
    alone(configs["whole"], two / "resumed", "updates=3", resume=True)
    yield SimpleNamespace(folder=folder, one=one, two=two, configs=configs)
    Distributed().leave()


def _figures(run: Path) -> list[dict[str, float]]:
    """Without those of the prefixes, of which each rank has a tree of its own."""
    records = without_times(read_metrics(run))
    return [{name: value for name, value in one.items() if not name.startswith("rollout/")} for one in records]


def _assert_alike(start: Path, one: Path, other: Path) -> None:
    """Equal rollouts and figures, and weights up to what the rounding of sums grows to: Adam makes full steps of
    gradients that are nothing but rounding, such as those of words that are never said."""
    for a, b in zip(_figures(one), _figures(other), strict=True):
        tolerance = 1e-4 if a["update"] < 2 else 0.1
        for name in (a.keys() | b.keys()) - set(ROUNDING):
            assert a[name] == pytest.approx(b[name], rel=tolerance, abs=1e-3), (a["update"], name)
    runs = [Run.open(run).last_checkpoint() for run in (one, other)]
    before, first, second = (_flat(load_policy(folder)) for folder in (start, *runs))
    assert (first - second).norm() < 0.3 * (first - before).norm()


def _flat(policy: TransformersPolicy) -> torch.Tensor:
    return torch.cat([w.flatten() for n, w in policy.model.named_parameters() if not n.endswith("k_proj.bias")])


@pytest.mark.full
@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_of_several_processes_are_those_of_one(
    model: Path, tmp_path: Path, processes: int, request: pytest.FixtureRequest
) -> None:
    several_processes.gradients(Distributed(), str(model), str(tmp_path / "1.safetensors"))
    if processes == 2:
        file = request.getfixturevalue("played").two / "gradients.safetensors"
    else:
        file = tmp_path / "3.safetensors"
        launch(3, [{"job": "gradients", "model": str(model), "file": str(file)}], tmp_path)
    one, several = load_file(tmp_path / "1.safetensors"), load_file(file)
    scale = max(gradient.abs().max().item() for name, gradient in one.items() if name != "seen")
    seen, theirs = one.pop("seen"), several.pop("seen")
    assert seen[0].min() < -1 and torch.allclose(seen, theirs, rtol=1e-4), "each token as it was read, on any rank"
    assert one.keys() == several.keys() and scale > 1e-3
    for name, gradient in one.items():
        assert torch.allclose(gradient, several[name], atol=1e-5 * scale), name


SLOW = """import time

from crbc_rl.training.loss import policy_loss

calls = []


def loss(*given):
    if given[3].rows and not calls:  # a trial before the run has no rows
        calls.append(1)
        time.sleep(40)
    return policy_loss(*given)
"""


@pytest.mark.full
def test_a_stopped_run_ends_an_update_that_is_longer_than_torchrun_waits(model: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    config = write_config(tmp_path / "c.yaml", model, **{**SETTINGS, "loss": {"objective": "slow:loss"}}, save_every=9)
    words = ["-m", "torch.distributed.run", PATIENT, "--standalone", "--nproc-per-node=2", "-m", "--", "crbc_lab.cli"]
    command = [sys.executable, *words, "train", str(config), "--run", str(tmp_path / "run"), "--allow-import"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=variables, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "run/metrics.jsonl").is_file():
            assert process.poll() is None
            time.sleep(0.1)
        time.sleep(5)  # into the first update
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, said = process.communicate(timeout=300)
    assert process.returncode == 1, "torchrun's own, whatever its ranks did"
    assert time.monotonic() - began > 31, "longer than torchrun waits by itself"
    assert [record["update"] for record in read_metrics(tmp_path / "run")] == [0, 1]
    assert Run.open(tmp_path / "run").last_checkpoint().name.endswith("000001") and "torchrun kills" not in said


@pytest.mark.full
def test_two_processes_train_what_one_does_and_one_goes_on_from_two(model: Path, played: SimpleNamespace) -> None:
    _assert_alike(model, played.one / "whole", played.two / "whole")

    last = Run.open(played.two / "whole").last_checkpoint()
    manifest = read_manifest(last)
    assert manifest is not None and damage(last) is None
    assert set(manifest) == {file.relative_to(last).as_posix() for file in files_of(last)}, "each rank read its share"
    shards = sorted(last.glob("trainer-*.safetensors"))
    assert [shard.name for shard in shards] == [
        "trainer-00000-of-00002.safetensors",
        "trainer-00001-of-00002.safetensors",
    ]
    name = "model.layers.0.mlp.up_proj.weight/exp_avg"
    assert [safe_open(shard, "pt").get_slice(name).get_shape() for shard in shards] == [[32, 32]] * 2

    # Each went on in the other's number of processes.
    assert len(_figures(played.one / "resumed")) == 4
    _assert_alike(model, played.one / "resumed", played.two / "resumed")


@pytest.mark.full
@pytest.mark.parametrize("which", CHANGES)
def test_an_update_of_two_processes_is_that_of_one(played: SimpleNamespace, which: str) -> None:
    """And one goes on with a critic that two left."""
    one, two = (_figures(folder / which)[1] for folder in (played.one, played.two))
    for name, value in one.items():
        if name not in ROUNDING:
            assert two[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    if which == "PPO":
        run = played.folder / "critic"
        shutil.copytree(played.two / which, run)
        alone(played.configs[which], run, "updates=2", resume=True)
        after = _figures(run)[2]
        assert after["grad_norm"] > 0 and after["value_grad_norm"] > 0
        assert after["drift"] < 1e-4, "it samples as it is trained"


@pytest.mark.full
def test_every_process_knows_the_values_of_all(played: SimpleNamespace) -> None:
    known = [json.loads((played.two / f"known.{rank}").read_text()) for rank in range(2)]
    assert known[0] == known[1]
    assert known[0]["parts"] == [{"text": "rank 0", "some": []}, {"text": "rank 1", "some": [0]}]
    assert known[0]["any"] == [True, False]
    assert known[0]["sum"] == [2.0, 10.0]


@pytest.mark.full
def test_a_reference_in_main_memory_is_the_same_reference(model: Path, tmp_path: Path) -> None:
    for name, offload in (("here", False), ("there", True)):
        changes = {**SETTINGS, "policy": {"precision": "bfloat16", "offload_reference": offload}, "updates": 2}
        alone(write_config(tmp_path / f"{name}.yaml", model, **changes), tmp_path / name)
    Distributed().leave()
    here, there = _figures(tmp_path / "here"), _figures(tmp_path / "there")
    assert here == there and here[2]["kl"] > 0


@pytest.mark.full
def test_passes_in_bfloat16_train_float32_weights(model: Path, tmp_path: Path) -> None:
    changes = {**SETTINGS, "policy": {"precision": "bfloat16"}, "updates": 1}
    alone(write_config(tmp_path / "config.yaml", model, **changes), tmp_path / "run")
    Distributed().leave()
    record = _figures(tmp_path / "run")[1]
    assert record["grad_norm"] > 0 and record["skipped_steps"] == 0
    assert 0 < record["mismatch_max"] < 0.2  # another model sampled, in bfloat16 as well
    last = Run.open(tmp_path / "run").last_checkpoint()
    assert {w.dtype for w in load_policy(last).model.parameters()} == {torch.float32}
    with safe_open(last / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float32}  # noqa: SIM118
