"""Checks of numbers: what a device computes, beside a CPU in double precision that reads every row alone, unpadded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.gpu.models import CPU, empty, exact_config, on, table, text_model, vision_model
from benchmarks.gpu.record import Figure, Figures, Machine
from crbc_rl.batches import RolloutBatch
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import full_tensor
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.vision import VisionPolicy
from crbc_rl.training.actor import Actor
from crbc_rl.training.critic import Critic
from crbc_rl.training.trainable import Trainable

LOGPROB, GRADIENT = 1e-4, 1e-3
"""What float32 may differ by: log-probabilities, and gradients relative to the largest of their tensor."""

Gradients = dict[str, Tensor]


def logprobs(machine: Machine) -> Figures:
    """Log-probabilities and gradients in float32."""
    config = exact_config(text_model(machine))
    return _compare(machine, config, _rows(machine))


def bfloat16(machine: Machine) -> Figures:
    """How far log-probabilities in bfloat16 are from those in float32, per token."""
    model, batch = text_model(machine), _rows(machine)
    exact = Actor(exact_config(model), on(machine)).score(batch)
    rough = Actor(exact_config(model, policy={"precision": "bfloat16"}), on(machine)).score(batch)
    gap = np.abs(exact - rough)
    return {
        "mean difference": Figure(float(gap.mean()), "nats", most=0.05),
        "largest difference": Figure(float(gap.max()), "nats", most=1.0),
        "mean bias": Figure(float((rough - exact).mean()), "nats"),
    }


def lora(machine: Machine) -> Figures:
    """LoRA's factors: where they are, their gradients, and the weights that engines and checkpoints get."""
    config = exact_config(text_model(machine), policy={"lora_rank": 4})
    batch = _rows(machine)
    found = _compare(machine, config, batch)
    actor = Actor(config, on(machine))
    elsewhere = [name for name, weight in actor.named if weight.device.type != machine.device]
    start, folder = actor.score(batch), empty(machine.folder / "merged")
    actor.optimise(replace(batch, old=start), np.random.default_rng(0))
    trained = actor.score(batch)
    actor.policy.save(folder)
    merged = Actor(exact_config(folder), on(machine)).score(batch)
    return {
        **found,
        "factors on another device": Figure(len(elsewhere), "", most=0),
        "merged weights, largest difference": Figure(_largest(trained - merged), "nats", most=LOGPROB),
        "what a step changes": Figure(_largest(trained - start), "nats", least=10 * LOGPROB),
    }


def critic(machine: Machine) -> Figures:
    """PPO's critic: values and gradients in float32."""
    config = exact_config(text_model(machine), credit={"method": "gae"})
    batch = _rows(machine)
    here, there = Critic(config, on(machine)), Critic(_alone(config), CPU)
    there.model.double()
    for one in (here, there):
        _fill(one.model.get_output_embeddings().weight)  # from zeros no gradient would reach the blocks
    target = np.random.default_rng(1).normal(size=len(batch.old))
    values = [one.forward_no_grad(batch, one.values) for one in (here, there)]
    batch = replace(batch, value=values[1], returns=target, token_advantage=target)
    return {
        "values, largest difference": Figure(_largest(values[0] - values[1]), "", most=LOGPROB),
        **_gradient_figures(gradients(here, batch), gradients(there, batch)),
    }


def vision(machine: Machine) -> Figures:
    """A tiny Qwen2.5-VL with a frame in every prompt."""
    model = vision_model(machine)
    batch = table(6, (3, 20), (1, 9), _vocabulary(model), frame=model)
    found = _compare(machine, exact_config(model), batch)
    policy = load_policy(model, machine.device)
    assert isinstance(policy, VisionPolicy)
    blank = replace(batch, turns=[replace(t, images=(np.zeros_like(t.images[0]),)) for t in batch.turns])
    seen, unseen = (Actor(exact_config(model), on(machine)).score(b) for b in (batch, blank))
    return {
        **found,
        "what the frames change": Figure(_largest(seen - unseen), "nats", least=1e-4),
        "parameters": Figure(sum(p.numel() for p in policy.model.parameters())),
        **_processors(policy.processor),
    }


def _processors(own: Any) -> Figures:
    """How far vLLM's patches of a frame are from ours, where torchvision is there, with which it cuts them."""
    if find_spec("torchvision") is None:
        return {}
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    frame = [Image.fromarray(np.random.default_rng(0).integers(256, size=(256, 256, 3), dtype=np.uint8))]
    both = [one(images=frame, return_tensors="pt") for one in (own, Qwen2VLImageProcessor.from_dict(own.to_dict()))]
    gap = (both[0]["pixel_values"] - both[1]["pixel_values"]).abs()
    return {
        "vLLM's patches, largest difference": Figure(gap.max().item(), "", most=0.02),  # one of 256 levels is 0.015
        "vLLM's patches, mean difference": Figure(gap.mean().item(), "", most=1e-3),
    }


def _rows(machine: Machine) -> RolloutBatch:
    count, prompt, reply = (10, (1, 24), (1, 9)) if machine.small else (12, (100, 400), (16, 96))
    return table(count, prompt, reply, _vocabulary(text_model(machine)))


def _vocabulary(folder: Path) -> int:
    return load_policy(folder).vocabulary


def _alone(config: TrainConfig) -> TrainConfig:
    """Passes of one row: nothing is padded."""
    return config.model_copy(update={"optim": config.optim.model_copy(update={"microbatch": 1})})


def _compare(machine: Machine, config: TrainConfig, batch: RolloutBatch) -> Figures:
    """An actor on the device, and one on the CPU in double precision: log-probabilities, and gradients of the loss."""
    torch.backends.cudnn.allow_tf32 = False  # torch allows it for convolutions, which cut frames into patches
    here, there = Actor(config, on(machine)), Actor(_alone(config), CPU)
    for one in (here, there):
        for name, weight in one.named:
            if ".lora_B." in name:  # from zeros no gradient would reach the other factors
                _fill(weight)
    there.model.double()
    if there.reference is not None:
        there.reference.model.double()
    scores = [one.score(batch) for one in (here, there)]
    batch = replace(batch, old=scores[1])
    return {
        "log-probabilities, largest difference": Figure(_largest(scores[0] - scores[1]), "nats", most=LOGPROB),
        "mean log-probability": Figure(float(scores[1].mean()), "nats"),
        **_gradient_figures(gradients(here, batch), gradients(there, batch)),
    }


def gradients(trained: Trainable, batch: RolloutBatch) -> Gradients:
    """The gradient of the whole table as one mini-batch."""
    found: Gradients = {}

    def keep(*_: object) -> None:
        for name, weight in trained.named:
            assert weight.grad is not None, name
            found[name] = full_tensor(weight.grad).double().cpu()

    hook = trained.optimizer.register_step_pre_hook(keep)
    trained.train_epochs(batch, np.random.default_rng(0))
    hook.remove()
    return found


def _gradient_figures(here: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> Figures:
    largest = max(g.abs().max().item() for g in there.values())
    errors = [(here[name] - g).abs().max().item() for name, g in there.items()]
    flow = sum(bool(g.any()) for g in here.values()) / len(here)
    return {
        "gradients, largest difference / largest": Figure(max(errors) / largest, "", most=GRADIENT),
        "tensors with a gradient": Figure(flow, "of all", least=1.0),
    }


@torch.no_grad()
def _fill(weight: Tensor) -> None:
    """The same small numbers on every device."""
    weight.copy_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max())
