"""Every tensor of a run is on its device. `CRBC_TEST_DEVICE=pretended` runs this on a GPU that a CPU pretends to have.

Numbers are compared with the CPU's, so that the tests also mean something on a device that mixes silently.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from critic_fixtures import BATCH, ppo
from learner_fixtures import small
from tables import table, weighed
from torch import nn
from vision_fixtures import fresh_vision_policy

from crbc_envs.prompts import Prompt
from crbc_lab.commands.warmstart import _backward
from crbc_rl.batches import RolloutBatch
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.learner import Learner
from crbc_rl.policies import load
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.actor import Actor
from crbc_rl.training.critic import Critic
from crbc_rl.training.trainable import Trainable

CPU = torch.device("cpu")
PROMPTS = [Prompt("up"), Prompt("Sokoban\n# @")] * 2
FRAME = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)


def _places(model: nn.Module) -> set[torch.device]:
    return {tensor.device for tensor in (*model.parameters(), *model.buffers())}


def _sampled(policy: TransformersPolicy, prompts: list[Prompt] = PROMPTS) -> RolloutBatch:
    turns = policy.generate(prompts, range(len(prompts)), 1.0, 5)
    return table(turns, advantage=[(-1.0) ** i for i in range(len(turns))])


def _all_on(trained: Trainable, device: torch.device) -> None:
    """Weights, moments, and the count of steps that AdamW's fused kernel reads there."""
    assert _places(trained.model) == {device}
    slots = [trained.optimizer.state[weight] for _, weight in trained.named]
    assert {value.device for state in slots for value in state.values()} == {device}
    assert bool(trained.optimizer.defaults["fused"]) == (device != CPU)


def _trained(config: TrainConfig, device: torch.device, batch: RolloutBatch, folder: Path) -> list[list[float]]:
    """The figures of three steps, of which the last is done by an actor that was restored."""
    actor = Actor(config, Distributed(device=device))
    losses = [list(actor.optimise(batch, np.random.default_rng(seed)).values()) for seed in range(2)]
    _all_on(actor, device)
    folder.mkdir()
    actor.save(folder, {"update": 1, "best": 0.5})
    again = Actor(config, Distributed(device=device), folder)
    _all_on(again, device)
    losses.append(list(again.optimise(batch, np.random.default_rng(2)).values()))
    scored = again.score(batch)
    return [*losses, scored.tolist()]


def test_lessons_are_learned_where_the_model_is(model: Path, device: torch.device) -> None:
    there, here = load_policy(model, device), load_policy(model, CPU)
    turns = _sampled(here).turns
    assert _backward(there, turns, 2) == pytest.approx(_backward(here, turns, 2))
    for weight, other in zip(there.model.parameters(), here.model.parameters(), strict=True):
        assert weight.grad is not None and other.grad is not None and weight.grad.device == device
        assert np.allclose(weight.grad.cpu().tolist(), other.grad.tolist(), atol=1e-5)


def test_a_policy_is_played_on_the_gpu_as_a_training_plays_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Loaded:
        def cast(self, precision: torch.dtype) -> None:
            asked.append(precision)

    def loaded(source: Path, *rest: Any) -> Loaded:
        asked.extend([source, *rest])
        return Loaded()

    config = small(model, policy={"precision": "bfloat16"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(load, "load_policy", loaded)
    monkeypatch.setattr(Run, "policy_folder", lambda run, which: Path(which))
    assert isinstance(Run(Path("run"), config).policy("best"), Loaded)
    assert asked == [Path("best"), "cuda", config.rollout, torch.bfloat16]


def test_a_loaded_policy_samples_and_scores_on_its_device(model: Path, device: torch.device) -> None:
    there, here = load_policy(model, device), load_policy(model, CPU)
    assert _places(there.model) == {device} == {there.device}
    batch = _sampled(there)
    for turn, other in zip(batch.turns, _sampled(here).turns, strict=True):
        assert turn.response == other.response and turn.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    passed = weighed(batch, there.pad).to(device)
    names = ("ids", "prompt", "real", "turn", "weights", "advantages")
    assert {getattr(passed, name).device for name in names} == {device}
    with torch.no_grad():
        scored, entropy = there.logprobs(passed, 1.0)
    assert {scored.device, entropy.device} == {device}
    assert (scored * passed.response_mask).cpu().allclose(passed.old_logprobs.cpu(), atol=1e-4)


@pytest.mark.parametrize("policy", [{}, {"lora_rank": 2}])
def test_an_actor_trains_is_saved_and_goes_on_with_all_it_has_on_its_device(
    model: Path, tmp_path: Path, device: torch.device, policy: dict[str, Any]
) -> None:
    config = small(model, policy=policy, loss={"kl": 0.05, "entropy": 0.01}, optim={"lr": 1e-3, "microbatch": 2})
    batch = _sampled(load_policy(model, CPU))
    figures = _trained(config, device, batch, tmp_path / "there")
    for found, expected in zip(figures, _trained(config, CPU, batch, tmp_path / "here"), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_reference_and_a_critic_are_on_the_device(model: Path, tmp_path: Path, device: torch.device) -> None:
    reference = Actor(small(model), Distributed(device=device)).reference
    assert reference is not None and _places(reference.model) == {device}
    figures = []
    for name, place in (("there", device), ("here", CPU)):
        critic = Critic(ppo(model), Distributed(device=place))
        figures.append([critic.optimise(critic.credit(BATCH), np.random.default_rng(0)), critic.credit(BATCH).value])
        _all_on(critic, place)
        folder = tmp_path / name
        folder.mkdir()
        critic.save(folder)
        again = Critic(ppo(model), Distributed(device=place), folder)
        _all_on(again, place)
        assert np.array_equal(again.credit(BATCH).value, figures[-1][1])
    (losses, values), (expected, expected_values) = figures
    assert losses == pytest.approx(expected, rel=1e-3, abs=1e-5) and np.allclose(values, expected_values, atol=1e-4)


def test_frames_are_seen_on_the_device(tmp_path: Path, device: torch.device) -> None:
    fresh_vision_policy().save(tmp_path / "model")
    config = small(tmp_path / "model", loss={"kl": 0.05}, policy={"lora_rank": 2})
    prompts = [Prompt("You see <image> and move", (FRAME,)), Prompt("up")]
    batch = _sampled(load_policy(tmp_path / "model", device), prompts)
    assert [turn.response for turn in batch.turns] == [
        turn.response for turn in _sampled(load_policy(tmp_path / "model", CPU), prompts).turns
    ]
    figures = _trained(config, device, batch, tmp_path / "there")
    for found, expected in zip(figures, _trained(config, CPU, batch, tmp_path / "here"), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_whole_run_stays_on_its_device_and_resumes(model: Path, tmp_path: Path, device: torch.device) -> None:
    short = {
        "env": {"kwargs": {"observation": "text", "max_steps": 2}},
        "eval": {"every": 1, "episodes": 1, "test_episodes": 1},
    }
    short["loss"] = {
        "entropy": 0.1
    }  # nobody succeeds in two steps, and AdamW makes steps of rounding: a gradient for sure
    for name, place in (("there", device), ("here", CPU)):
        for updates in (1, 2):
            config = small(model, updates=updates, **short)
            run = Run.start(tmp_path / name, config, resume=updates > 1)
            learner = Learner(config, run, distributed=Distributed(device=place))
            learner.train()
            _all_on(learner.actor, place)
    kept = ("loss", "entropy", "drift", "kl", "grad_norm", "validation/success", "length")
    there, here = ([[r.get(k, 0.0) for k in kept] for r in read_metrics(tmp_path / name)] for name in ("there", "here"))
    assert len(there) == 3 and np.allclose(there, here, rtol=1e-3, atol=1e-5)


PRETENDED = os.environ.get("CRBC_TEST_DEVICE") == "pretended"


@pytest.mark.full
@pytest.mark.skipif(PRETENDED, reason="this is that run")
def test_all_this_holds_on_a_pretended_gpu(project: Path) -> None:
    """In a process of its own, since torch learns of a device once."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(Path(__file__))]
    env = {**os.environ, "CRBC_TEST_DEVICE": "pretended"}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
