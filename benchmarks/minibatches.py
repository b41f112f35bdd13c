"""What the order of mini-batches does to optimizer steps: `python -m benchmarks.minibatches` (four minutes of CPU).

One update of each tiny agent is sampled from its warm start, and credited as its config says. For each order and size
the table has the optimizer steps, the smallest and the largest mini-batch in rows, the share of steps without policy
gradient, and the variance of the steps' gradients: the mean of |g - G|^2 / |G|^2 over mini-batches, where g is the
policy gradient of a mini-batch and G the mean of them. `read` are the turns that are read, since equal turns of a
mini-batch are read once. All are means over `DRAWS` draws of the order.

"whole groups, each step full" is what was done before: rows group by group, and the last mini-batch a full step however
short it is. Before the weights change, a row's policy gradient is its advantage times the gradient of its
log-probability. So the latter is computed once for each distinct turn, and only its sketch is kept: every weight is
added, with a random sign, to one of `BUCKETS` sums (Charikar et al. 2002), which keeps lengths and angles.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from anchors import EmpiricalProcess
from crbc_rl.batches import Floats, Ints, RolloutBatch, equal_turns, micro_batches
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.training.actor import Actor
from crbc_rl.training.minibatches import MiniBatch, mini_batches

CONFIGS = Path(__file__).parents[1] / "configs"
AGENTS = ("sokoban_tiny", "webshop_tiny", "alfworld_tiny")
SIZES = (256, 64, 16)
BEFORE = "whole groups, each step full"
ORDERS = {BEFORE: "group", "whole groups": "group", "eight ranks": "ranks", "spread": "spread"}
DRAWS = 20
BUCKETS = 8192


def sampled(config: TrainConfig, folder: Path) -> tuple[Actor, RolloutBatch]:
    """The policy before training, and its first update with credit."""
    learner = Learner(config, Run.start(folder, config, resume=False))
    with closing(learner):
        batch = learner.worker.sample(1)
        assert learner.estimator is not None
        process = EmpiricalProcess.from_interned(batch.rollouts)
        batch = replace(batch, advantage=learner.estimator(process, **learner.credit_options))
    return learner.actor, batch


def sketches(actor: Actor, batch: RolloutBatch) -> tuple[Ints, Floats]:
    """The number of each row's distinct turn, (n,), and the sketch of the gradient of each distinct turn's
    log-probability, (U, BUCKETS)."""
    sets = list(equal_turns(batch.turns).values())
    turn = np.empty(len(batch), dtype=np.int64)
    for number, rows in enumerate(sets):
        turn[rows] = number
    draws = torch.Generator().manual_seed(0)
    size = sum(weight.numel() for _, weight in actor.named)
    bucket = torch.randint(BUCKETS, (size,), generator=draws)
    sign = torch.randint(2, (size,), generator=draws) * 2.0 - 1.0
    found = np.empty((len(sets), BUCKETS))
    for number, rows in enumerate(sets):
        (tokens,) = micro_batches(batch, np.array(rows[:1]), np.ones(1), actor.policy.pad)
        logprobs, _ = actor.policy.logprobs(tokens, actor.config.rollout.temperature, entropy_counts=False)
        actor.optimizer.zero_grad()
        logprobs.sum().backward()
        gradient = torch.cat(
            [torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for _, w in actor.named]
        )
        found[number] = torch.zeros(BUCKETS).index_add_(0, bucket, gradient * sign).numpy()
    return turn, found


def cut(batch: RolloutBatch, config: TrainConfig, name: str, size: int, draw: int) -> list[MiniBatch]:
    optim = config.optim.model_copy(update={"minibatch": size, "order": ORDERS[name]})
    changed = config.model_copy(update={"optim": optim})
    parts = mini_batches(batch, changed, np.random.default_rng((size, draw)))
    if name != BEFORE:
        return parts
    return [replace(p, weights=p.weights / (p.weights * batch.response_length[p.rows]).sum()) for p in parts]


def variance(found: Floats) -> float:
    """The variance of gradients (k, BUCKETS) relative to the square of their mean."""
    mean = found.mean(axis=0)
    return float(((found - mean) ** 2).sum() / (len(found) * (mean**2).sum()))


def measure(config: TrainConfig, folder: Path, sizes: Sequence[int]) -> None:
    actor, batch = sampled(config, folder)
    rates = batch.rollouts.success_rate
    mixed = int(((rates > 0) & (rates < 1)).sum())
    turn, gradient = sketches(actor, batch)
    print(f"\n{config.name}: {len(batch):,} rows of {len(rates)} groups, {mixed} of them of mixed outcome;")
    print(f"{len(gradient):,} distinct turns")
    print(f"  {'order':<30}{'size':>6}{'steps':>7}{'rows':>12}{'read':>8}{'empty':>9}{'variance':>10}")
    for size in sizes:
        for name in ORDERS:
            counts = []
            for draw in range(DRAWS):
                parts = cut(batch, config, name, size, draw)
                weight = [(turn[p.rows], (p.weights * batch.advantage[p.rows])[:, None]) for p in parts]
                steps = np.array([(w * gradient[t]).sum(axis=0) for t, w in weight])
                rows = [len(p.rows) for p in parts]
                read = sum(len(set(t.tolist())) for t, _ in weight)
                idle = sum(not part.signal.any() for part in parts) / len(parts)
                counts.append((len(parts), min(rows), max(rows), read, idle, variance(steps)))
            count, least, most, read, empty, spread = np.mean(counts, axis=0)
            rows_told = f"{least:.0f} to {most:.0f}"
            print(f"  {name:<30}{size:>6}{count:>7.0f}{rows_told:>12}{read:>8.0f}{empty:>9.1%}{spread:>10.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minibatches", description="The order of mini-batches.")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as in crbc train")
    given = parser.parse_args(arguments)
    for agent in given.agents:
        config = load_config(CONFIGS / f"{agent}.yaml", ["loss.kl=0", "threads=1", *given.set])
        with tempfile.TemporaryDirectory() as folder:
            measure(config, Path(folder) / "run", given.sizes)


if __name__ == "__main__":
    main()
