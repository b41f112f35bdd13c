"""The cost of the learner: `python -m benchmarks.learner` (two minutes of CPU; `--config`, `--set` for another run).

"phases" measures the parts of an update, and "passes" the effect of smaller passes. "trl" trains our trainer and TRL's
GRPO trainer on the same rows, from the same weights, in the same mini-batches and with the same settings. The printed
mean gradient norms show that both compute the same. All times are CPU seconds, so neither waiting nor other processes
count.

Equal for both: prompts, replies, old log-probabilities, advantages, mini-batches with the same rows in the same order,
clipping, KL against a reference that each computes itself, AdamW, float32, one pass per mini-batch, no gradient
checkpointing. Collation counts for both; TRL's time starts when its loop requests the first rows. Different: members of
a group often give the same reply at the same anchor. Ours reads such turns once, TRL reads every row, so there are also
figures with every distinct turn once. On a CPU ours also reads once what turns begin alike with. Ours keeps the
log-probabilities of sampling. Where an update has several mini-batches, TRL reads all rows once more for them; this has
its own row here. Without a GPU, TRL computes logits at every token, ours at the trained tokens. TRL's optimizer is its
default, the fused one.

Sampling: the prompts of a whole update, one call per step of the environments. TRL pads on the left and calls
`model.generate`. Ours reads once what prompts begin alike with, also of earlier calls of the update, and returns
log-probabilities with the tokens. Before each repeat it forgets what it has read, as the learner does before an update.
The random draws differ, so the replies differ by a few tokens in length.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from anchors import InternedRollouts
from benchmarks.credit import table
from crbc_envs.errors import install_extra
from crbc_envs.prompts import Prompt
from crbc_rl.batches import Ints, RolloutBatch
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.distributed import Distributed
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.phases import blocks
from crbc_rl.training.actor import Actor
from crbc_rl.training.clock import Clock
from crbc_rl.training.minibatches import mini_batches

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.grpo import RowsTrainer

CONFIG = Path(__file__).parents[1] / "configs" / "sokoban_tiny.yaml"
MICROBATCHES = (None, 128, 64, 32)
PARTS = {
    "sampling": ("rollout", "environments, prompts, anchors"),
    "the reference's forward": ("train", "backward, loss, batches"),
    "the policy's forward": ("train", "backward, loss, batches"),
    "optimizer": ("train", "backward, loss, batches"),
}
"""The phase each part is in, and what the rest of that phase is."""


@dataclass(slots=True)
class Measured:
    """CPU seconds of each update by phase and part; the last update's table, and the calls that sampled it."""

    updates: list[defaultdict[str, float]] = field(default_factory=list)
    batch: RolloutBatch = field(init=False)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    evaluation: float = 0.0


def cpu_seconds(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def measure(config: TrainConfig, folder: Path, updates: int) -> Measured:
    """Evaluate once, then play and train `updates` updates as the learner does."""
    found = Measured()
    learner = Learner(config, Run.start(folder, config, resume=False))
    actor, spent = learner.actor, defaultdict[str, float](float)
    clock = learner.clock = learner.worker.clock = actor.clock = Clock(time.process_time)

    def watch(owner: Any, name: str, part: str, see: Callable[..., object] = lambda *_: None) -> None:
        call = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            see(*arguments)
            begun = time.process_time()
            result = call(*arguments, **options)
            spent[part] += time.process_time() - begun
            return result

        setattr(owner, name, timed)

    watch(actor.policy, "generate", "sampling", lambda *asked: found.asked.append(asked))
    watch(actor, "optimise", "optimise", lambda batch, _: setattr(found, "batch", batch))
    watch(actor.policy, "logprobs", "the policy's forward")
    watch(actor.optimizer, "step", "optimizer")
    if actor.reference is not None:
        watch(actor.reference, "logprobs", "the reference's forward")
    found.evaluation = cpu_seconds(lambda: learner.worker.evaluate("validation", config.eval.episodes))
    for learner.update in range(1, updates + 1):
        found.asked.clear()
        spent.clear()
        clock.take()
        spent["update"] = cpu_seconds(learner.step)
        seconds = {f"seconds/{phase}": s for phase, s in clock.take().items()}
        found.updates.append(defaultdict(float, {**spent, **blocks(seconds)}))
    learner.worker.close()
    return found


def phases(config: TrainConfig, found: Measured) -> None:
    """Print the time of an update by phase and part."""
    medians = {name: median(update[name] for update in found.updates) for name in found.updates[0]}
    whole = medians["update"]

    def line(name: str, seconds: float) -> tuple[str, str]:
        return name, f"{seconds:9.3f} s {seconds / whole:6.1%}"

    rows = []
    for phase in ("rollout", "credit", "train"):
        rows.append(line(phase, medians[phase]))
        parts = [name for name, (where, _) in PARTS.items() if where == phase and name in medians]
        rows += [line(f"  {name}", medians[name]) for name in parts]
        if parts:
            rows.append(line(f"  {PARTS[parts[0]][1]}", medians[phase] - sum(medians[name] for name in parts)))
    rows.append(line("files, figures", whole - sum(medians[phase] for phase in ("rollout", "credit", "train"))))
    rows.append(line("an update", whole))
    share = found.evaluation / config.eval.every
    rows.append(line(f"validation, {config.eval.episodes} tasks, every {config.eval.every}: per update", share))
    table(f"{config.name}: CPU time of an update, median of {len(found.updates)}", rows)


# ---- beside TRL ------------------------------------------------------------------------------------------


def some_rows(batch: RolloutBatch, rows: Ints) -> RolloutBatch:
    """Some rows, each as a rollout of one step: what training reads of them is the same."""
    n = np.arange(len(rows))
    zero = np.zeros_like(n)
    rollouts = InternedRollouts(
        rollout=n, step=zero, anchor=zero, action=zero, group=zero, length=zero + 1, success=zero + 1
    )
    starts, length = batch.ends - batch.response_length, batch.response_length[rows]
    tokens = np.concatenate([np.arange(starts[row], batch.ends[row]) for row in rows])
    columns: dict[str, Any] = {}
    for name in ("old", "token_advantage", "value", "returns", "correction"):
        values = getattr(batch, name)
        columns[name] = values if values is None else values[tokens]
    return replace(
        batch,
        rollouts=rollouts,
        turns=[batch.turns[row] for row in rows],
        response_length=length,
        advantage=batch.advantage[rows],
        **columns,
    )


def minibatches_of(batch: RolloutBatch, config: TrainConfig) -> list[Ints]:
    """The rows of each mini-batch, in order."""
    return [part.rows for part in mini_batches(batch, config, np.random.default_rng(0))]


def train_once(config: TrainConfig, batch: RolloutBatch, parts: Sequence[Ints]) -> tuple[float, float]:
    """Seconds of our trainer over these mini-batches, and the mean gradient norm. Each is an update of its own, since
    TRL weighs the tokens of each by themselves."""
    actor = Actor(config, Distributed())
    whole = config.optim.model_copy(update={"minibatch": len(batch)})
    actor.config = config.model_copy(update={"optim": whole})
    updates = [some_rows(batch, part) for part in parts]
    norms: list[float] = []
    seconds = cpu_seconds(
        lambda: norms.extend(actor.optimise(update, np.random.default_rng(0))["grad_norm"] for update in updates)
    )
    return seconds, float(np.mean(norms))


def beside_trl(config: TrainConfig, found: Measured, folder: Path, repeats: int) -> None:
    """The same rows through both trainers, in turns; then the same prompts."""
    from benchmarks.grpo import grpo_trainer

    every = np.arange(len(found.batch))
    distinct = np.array(list({turn.key: row for row, turn in enumerate(found.batch.turns)}.values()))
    for rows, name in ((every, "rows as they were played"), (distinct, "every distinct turn once")):
        batch = some_rows(found.batch, rows)
        minibatches = minibatches_of(batch, config)
        ours, theirs, norms, scored = [], [], (0.0, 0.0), []
        for _ in range(repeats):
            seconds, norm = train_once(config, batch, minibatches)
            ours.append(seconds)
            peer = grpo_trainer(Path(config.model), config, folder / "trl")
            inputs = [peer.inputs(batch, part) for part in minibatches]
            scored.append(cpu_seconds(partial(_score, peer, inputs)))
            steps = peer.optimise(batch, minibatches)
            theirs.append(peer.seconds)
            norms = norm, float(np.mean([step["grad_norm"] for step in steps]))
        lines = [*versus(ours, theirs, "TRL's trainer")]
        if len(minibatches) > 1:
            lines.append(("TRL: once more for old log-probabilities", f"{median(scored):.2f} s"))
        lines.append(("mean gradient norm, ours and TRL's", f"{norms[0]:.6f} {norms[1]:.6f}"))
        table(f"Training on {len(rows):,} rows ({name}), {len(minibatches)} mini-batches", lines)

    policy = load_policy(config.model)
    peer = grpo_trainer(Path(config.model), config, folder / "trl")
    once = [_once(policy, *asked) for asked in found.asked]
    for calls, name in ((found.asked, "as they were asked"), (once, "every distinct prompt once")):
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(cpu_seconds(partial(_generate, policy, calls)))
            theirs.append(cpu_seconds(partial(_sample, peer, policy, calls)))
        prompts = sum(len(asked[0]) for asked in calls)
        table(f"Sampling for {prompts:,} prompts ({name}), {len(calls)} calls", versus(ours, theirs, "model.generate"))


def _score(peer: RowsTrainer, inputs: Sequence[dict[str, Tensor]]) -> None:
    for part in inputs:
        peer.score(peer.model, part)


def _generate(policy: TransformersPolicy, calls: Sequence[tuple[Any, ...]]) -> None:
    policy.forget()
    for asked in calls:
        policy.generate(*asked)


def _sample(peer: RowsTrainer, policy: TransformersPolicy, calls: Sequence[tuple[Any, ...]]) -> None:
    for asked in calls:
        peer.sample([policy.encode(prompt) for prompt in asked[0]])


def versus(ours: Sequence[float], theirs: Sequence[float], name: str) -> list[tuple[str, str]]:
    here, there = median(ours), median(theirs)
    return [("ours", f"{here:.2f} s"), (name, f"{there:.2f} s"), (f"{name} / ours", f"{there / here:.2f} times")]


def _once(policy: TransformersPolicy, prompts: Sequence[Prompt], seeds: Sequence[int], *rest: Any) -> tuple[Any, ...]:
    """The same call with each distinct prompt once."""
    first = {tuple(policy.encode(prompt)): i for i, prompt in reversed(list(enumerate(prompts)))}
    chosen = sorted(first.values())
    return [prompts[i] for i in chosen], [seeds[i] for i in chosen], *rest


# ---- passes ----------------------------------------------------------------------------------------------


def passes(config: TrainConfig, found: Measured, repeats: int) -> None:
    """Print the effect of smaller passes of similar length, `optim.microbatch`."""

    def chosen(size: int | None) -> TrainConfig:
        return config.model_copy(update={"optim": config.optim.model_copy(update={"microbatch": size})})

    batch = found.batch
    parts = minibatches_of(batch, config)
    spent: dict[int | None, list[float]] = {size: [] for size in MICROBATCHES}
    for _ in range(repeats):
        for size, times in spent.items():
            times.append(train_once(chosen(size), batch, parts)[0])
    whole = median(spent[None])
    lines = [
        (
            f"{size or 'all at once'}",
            f"{share_read(batch, parts, chosen(size)):4.0%} of the tokens read {median(times):7.2f} s "
            f"{median(times) / whole:.2f} times",
        )
        for size, times in spent.items()
    ]
    table(f"Training on {len(batch):,} rows by optim.microbatch", lines)


def share_read(batch: RolloutBatch, parts: Sequence[Ints], config: TrainConfig) -> float:
    """The tokens of the trainer's passes, padding among them, by the tokens of all rows."""
    actor = Actor(config, Distributed())
    read = sum(one.ids.numel() for part in parts for one in actor._passes(batch, part, None, config.optim.microbatch))
    return read / sum(len(turn.prompt) + len(turn.response) for turn in batch.turns)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learner", description="What an update costs.")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as in crbc train")
    parser.add_argument(
        "--updates", type=int, default=3, help="updates to play and train; the last one's rows are used"
    )
    parser.add_argument("--repeats", type=int, default=1, help="times each comparison is made; medians are printed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=["phases", "passes", "trl"], default=["phases", "passes", "trl"])
    given = parser.parse_args(arguments)
    for name in ("updates", "repeats", "threads"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be positive, got {getattr(given, name)}")
    config = load_config(given.config, [*given.set, f"threads={given.threads}"])
    with tempfile.TemporaryDirectory() as folder:
        found = measure(config, Path(folder) / "run", given.updates)
        if "phases" in given.parts:
            phases(config, found)
        if "passes" in given.parts:
            passes(config, found, given.repeats)
        if "trl" in given.parts and importlib.util.find_spec("trl") is None:
            print(f"\nTRL is not installed; to compare with it: {install_extra('dev')}")
        elif "trl" in given.parts:
            beside_trl(config, found, Path(folder), given.repeats)


if __name__ == "__main__":
    main()
