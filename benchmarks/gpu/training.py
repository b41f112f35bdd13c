"""Checks of a run's parts: an offloaded reference, a checkpoint that is taken up again, and updates from end to end."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.gpu.models import ROOT, allocated, empty, exact_config, on, table, text_model
from benchmarks.gpu.record import Figure, Figures, Machine
from crbc_rl.batches import collate
from crbc_rl.config import load_config
from crbc_rl.distributed import full_tensors
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.training.actor import Actor
from crbc_rl.training.clock import Callback, Record, finished


def offload(machine: Machine) -> Figures:
    """A reference in main memory computes what one on the device does; and what that saves there."""
    model, batch = text_model(machine), table(8, (4, 24), (2, 9), 300)
    scores, held = [], []
    for away in (False, True):
        before = allocated(machine)
        config = exact_config(model, policy={"precision": "bfloat16", "offload_reference": away})
        actor = Actor(config, on(machine))
        assert actor.reference is not None
        held.append(allocated(machine) - before)
        with torch.no_grad():
            tokens = collate(batch, actor.policy.pad).to(on(machine).device)
            scores.append(actor.reference.logprobs(tokens, 1.0)[0].cpu())
        figures = actor.optimise(batch, np.random.default_rng(0))  # its weights also come and go beside the policy's
        del actor
    return {
        "largest difference": Figure((scores[0] - scores[1]).abs().max().item(), "nats", most=1e-5),
        "saved on the device": Figure((held[0] - held[1]) / 2**20, "MiB", least=0.0),
        "skipped steps": Figure(figures["skipped_steps"], "", most=0),
    }


def adamw(machine: Machine) -> Figures:
    """Three steps of AdamW, fused and by torch's lists of tensors: weights, seconds, memory beyond what both keep."""
    found, weights = dict[str, Figure](), []
    for name in ("foreach", "fused"):
        generator = torch.Generator().manual_seed(0)
        shapes = [(64, 64)] * 8 if machine.small else [(1536, 8960), (1536, 1536)] * 28
        tensors = [torch.randn(shape, generator=generator).to(on(machine).device) for shape in shapes]
        for tensor in tensors:
            tensor.requires_grad_().grad = tensor.detach() * 0.1
        optimizer = torch.optim.AdamW(tensors, lr=1e-3, foreach=name == "foreach", fused=name == "fused")
        optimizer.step()
        now, kept = finished(on(machine).device), allocated(machine)
        if machine.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begun = now()
        optimizer.step()
        optimizer.step()
        found[f"{name}, a step"] = Figure((now() - begun) / 2, "s")
        if machine.device == "cuda":
            found[f"{name}, memory of a step"] = Figure((torch.cuda.max_memory_allocated() - kept) / 2**20, "MiB")
        weights.append([tensor.detach().cpu() for tensor in tensors])
    gap = max((a - b).abs().max().item() for a, b in zip(*weights, strict=True))
    return {**found, "weights, largest difference": Figure(gap, "", most=1e-5)}


def resume(machine: Machine) -> Figures:
    """A saved actor, loaded: its weights and moments to the bit, and its next optimizer step beside the saved one's."""
    config, batch = exact_config(text_model(machine)), table(8, (4, 24), (2, 9), 300)
    folder = empty(machine.folder / "resumed")
    first = Actor(config, on(machine))
    first.optimise(batch, np.random.default_rng(0))
    first.save(folder, {"update": 1, "best": 0.0})
    second = Actor(config, on(machine), folder)
    found = {
        "weights that differ after loading": Figure(_gap(first, second)[0], "", most=0),
        "moments that differ after loading": Figure(_moments(first, second), "", most=0),
    }
    for actor in (first, second):
        actor.optimise(batch, np.random.default_rng(1))
    # Sums on a GPU may be in another order each time. Adam's step is about the rate whatever the gradient's size.
    _, largest, mean = _gap(first, second)
    return {
        **found,
        "next step, largest difference": Figure(largest / config.optim.lr, "learning rates"),
        "next step, mean difference": Figure(
            mean / config.optim.lr, "learning rates", most=0.0 if machine.device == "cpu" else 0.01
        ),
    }


def _gap(one: Actor, other: Actor) -> tuple[int, float, float]:
    """How many weights differ, and by how much at most and on average."""
    pairs = zip(full_tensors(one.model), full_tensors(other.model), strict=True)
    gaps = torch.cat([(a - b).abs().flatten().cpu() for (_, a), (_, b) in pairs])
    return int((gaps > 0).sum()), gaps.max().item(), gaps.mean().item()


def _moments(one: Actor, other: Actor) -> int:
    """How many of Adam's moments differ."""
    states = [[trained.optimizer.state[weight] for _, weight in trained.named] for trained in (one, other)]
    return sum(int((a[m] != b[m]).sum()) for a, b in zip(*states, strict=True) for m in ("exp_avg", "exp_avg_sq"))


class _Records(Callback):
    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)


def training(machine: Machine) -> Figures:
    """Two updates of Sokoban with the warm-started tiny agent, in float32 and in bfloat16."""
    found: Figures = {}
    for precision, drift in (("float32", 1e-3), ("bfloat16", 0.1)):
        size = ["rollout.num_groups=3", "rollout.group_size=3", "rollout.max_new_tokens=8"] if machine.small else []
        test = [f"eval.{name}={2 if machine.small else 64}" for name in ("episodes", "test_episodes")]
        run = [
            "updates=2",
            "save_every=2",
            "eval.every=2",
            f"threads={torch.get_num_threads()}",
            f"policy.precision={precision}",
        ]
        config = load_config(ROOT / "configs" / "sokoban_tiny.yaml", [*size, *test, *run])
        told = _Records()
        folder = empty(machine.folder / f"run-{precision}")
        Learner(config, Run.start(folder, config, resume=False), told, on(machine)).train()
        last = told.records[-1]
        if "mismatch" in last:  # the model that samples is a copy
            found[f"{precision}: mismatch"] = Figure(last["mismatch"], "nats", most=drift)
        found |= {
            f"{precision}: updates": Figure(last["update"], "", most=2, least=2),
            f"{precision}: drift": Figure(last["drift"], "nats", most=drift),
            f"{precision}: gradient norm": Figure(last["grad_norm"], "", least=1e-6),
            f"{precision}: skipped steps": Figure(last["skipped_steps"], "", most=0),
            f"{precision}: steps": Figure(last["steps"]),
            **{f"{precision}: {name}": Figure(s, "s") for name, s in last.items() if name.startswith("seconds/")},
        }
    return found
