"""Checks at the paper's scale: Qwen2.5-1.5B's shape with random weights, at the paper's lengths and passes.

MFU is the model's floating-point operations per second over the device's peak in dense bfloat16. For a row of L tokens
with R of them sampled, a forward pass has 2 L operations for each parameter of the blocks, 2 L^2 hidden for the causal
attention of each block, and 2 (R + 1) hidden vocabulary for the logits. Backward counts twice as much. The reference's
forward pass counts. What gradient checkpointing computes again does not.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu.models import allocated, empty, large_model, on, paper_config, table
from benchmarks.gpu.record import Figure, Figures, Machine
from crbc_lab.plan.architecture import Architecture, measure
from crbc_lab.plan.memory import GIB, Parts, estimate
from crbc_rl.batches import RolloutBatch
from crbc_rl.config import TrainConfig
from crbc_rl.policies.files import read_config
from crbc_rl.training.actor import Actor

PEAK = {"B200": 2250e12, "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12}
"""Dense bfloat16 operations per second from data sheets, by a part of the device's name; the first that fits counts."""

NOT_HERE = ("reserve", "copy that samples")
"""Parts of the plan that are not tensors, or that a check without rollouts does not make."""


def paper(machine: Machine) -> Figures:
    """Optimizer steps on rows of full length: memory beside the plan's, tokens per second, MFU."""
    config = paper_config(machine)
    model = _architecture(machine)
    plan = estimate(config, model, gpus=1, gib=80).phases
    _reset(machine)
    before = allocated(machine)  # work space of libraries, if other checks ran in this process
    begun = time.perf_counter()
    actor = Actor(config, on(machine))
    found = {"load": Figure(time.perf_counter() - begun, "s"), **_memory(machine, "loading", plan["loading"], before)}
    batch = _full_rows(config, 3)
    _step(machine, actor, batch)  # the first one allocates, and chooses its kernels
    _reset(machine)
    seconds, figures = _step(machine, actor, batch)
    tokens = sum(len(turn.prompt) + len(turn.response) for turn in batch.turns)
    found |= {
        **_memory(machine, "training", plan["training"], before),
        "skipped steps": Figure(figures["skipped_steps"], "", most=0),
        "seconds of an optimizer step": Figure(seconds / 3, "s"),
        "tokens trained": Figure(tokens / seconds, "tokens/s"),
        **_use(machine, "training", 4 * _forward(model, batch), seconds),
    }
    begun = time.perf_counter()
    actor.score(batch)
    seconds = time.perf_counter() - begun
    return {
        **found,
        "tokens scored": Figure(tokens / seconds, "tokens/s"),
        **_use(machine, "scoring", _forward(model, batch), seconds),
    }


def padding(machine: Machine) -> Figures:
    """What padding costs: rows of one length, and rows of half to full length, as they come."""
    config = paper_config(machine, "loss.kl=0")
    actor = Actor(config, on(machine))
    limits = config.rollout
    prompt, reply = limits.max_prompt_tokens or 0, limits.max_new_tokens
    rows = config.optim.minibatch
    vocabulary = actor.policy.vocabulary
    tables = {
        "one length": table(rows, (prompt, prompt), (reply, reply), vocabulary),
        "half to full": table(rows, (prompt // 2, prompt), (reply // 2, reply), vocabulary),
    }
    found: Figures = {}
    speed = {}
    for name, batch in tables.items():
        _step(machine, actor, batch)
        _reset(machine)
        seconds, _ = _step(machine, actor, batch)
        speed[name] = sum(len(turn.prompt) + len(turn.response) for turn in batch.turns) / seconds
        found[f"{name}: real tokens"] = Figure(speed[name], "tokens/s")
        if machine.device == "cuda":
            found[f"{name}: peak"] = Figure(allocated(machine, peak=True) / GIB, "GiB")
    return {
        **found,
        "one length / half to full": Figure(speed["one length"] / speed["half to full"], "times the speed"),
    }


def saving(machine: Machine) -> Figures:
    """Seconds to save a checkpoint and to load it."""
    config = paper_config(machine)
    actor = Actor(config, on(machine))
    _step(machine, actor, _full_rows(config, 1))  # else the optimizer has no moments
    folder = empty(machine.folder / "saved")
    begun = time.perf_counter()
    actor.save(folder, {"update": 1, "best": 0.0})
    saved = time.perf_counter() - begun
    batch = _full_rows(config, 1)
    before = actor.score(batch)
    del actor
    _reset(machine)
    begun = time.perf_counter()
    actor = Actor(config, on(machine), folder)
    loaded = time.perf_counter() - begun
    return {
        "save": Figure(saved, "s"),
        "load": Figure(loaded, "s"),
        "size": Figure(sum(path.stat().st_size for path in folder.iterdir()) / GIB, "GiB"),
        "largest difference": Figure(float(np.abs(actor.score(batch) - before).max()), "nats", most=1e-5),
    }


def _architecture(machine: Machine) -> Architecture:
    folder: Path = large_model(machine)
    return measure(read_config(folder), "random weights")


def _full_rows(config: TrainConfig, steps: int) -> RolloutBatch:
    """Rows of some mini-batches, all at the limits of tokens."""
    prompt, reply = config.rollout.max_prompt_tokens or 0, config.rollout.max_new_tokens
    return table(steps * config.optim.minibatch, (prompt, prompt), (reply, reply), 300)


def _step(machine: Machine, actor: Actor, batch: RolloutBatch) -> tuple[float, dict[str, float]]:
    """Seconds and metrics of the optimizer steps over a table."""
    _wait(machine)
    begun = time.perf_counter()
    figures = actor.optimise(batch, np.random.default_rng(0))
    _wait(machine)
    return time.perf_counter() - begun, figures


def _wait(machine: Machine) -> None:
    if machine.device == "cuda":
        torch.cuda.synchronize()


def _reset(machine: Machine) -> None:
    """Count the peak of tensors anew. Torch keeps the memory that it has, so that no measured step asks CUDA for it."""
    gc.collect()
    if machine.device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _memory(machine: Machine, phase: str, parts: Parts, before: int) -> Figures:
    """The plan's bytes for a phase, and those that torch counted beyond the `before` that were there; a plan is an
    upper bound."""
    planned = sum(size for name, size in parts.items() if name not in NOT_HERE)
    found = {f"{phase}: planned": Figure(planned / GIB, "GiB")}
    if machine.device == "cuda":
        peak = allocated(machine, peak=True) - before
        found[f"{phase}: peak"] = Figure(peak / GIB, "GiB")
        # Tiny models lie below what a plan rounds away, and torch rounds the size of every tensor up.
        found[f"{phase}: peak / planned"] = Figure(peak / planned, "", most=None if machine.small else 1.001)
    return found


def _forward(model: Architecture, batch: RolloutBatch) -> float:
    """Floating-point operations of a forward pass over a table."""
    blocks = model.parameters - model.outside
    total = 0.0
    for turn in batch.turns:
        length, reply = len(turn.prompt) + len(turn.response), len(turn.response)
        attention = 2 * model.layers * model.hidden * length**2
        total += 2 * length * blocks + attention + 2 * (reply + 1) * model.hidden * model.vocabulary
    return total


def _use(machine: Machine, what: str, operations: float, seconds: float) -> Figures:
    found = {f"{what}: speed": Figure(operations / seconds / 1e12, "TFLOP/s")}
    name = torch.cuda.get_device_name() if machine.device == "cuda" else ""
    peak = next((value for part, value in PEAK.items() if part in name), None)
    return found if peak is None else {**found, f"{what}: MFU": Figure(operations / seconds / peak, "of the peak")}
