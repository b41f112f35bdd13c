"""Base class of models that are optimised over rows: one optimizer step per mini-batch, in passes that fit memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from crbc_rl.batches import Floats, Ints, RolloutBatch, TokenBatch, micro_batches
from crbc_rl.config import OptimConfig, TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.training.checkpoint import restore_optimizer, save_optimizer
from crbc_rl.training.clock import Clock
from crbc_rl.training.minibatches import MiniBatch, mini_batches

Metrics = dict[str, float]

IN_A_ROW = 3
"""Optimizer steps in a row whose loss or gradient is not finite before training ends."""


class Trainable:
    """The model of `policy` and its optimizer, sharded over the ranks of `distributed`. Subclasses define `loss`."""

    by_advantage = False
    """Whether rows without an advantage have no gradient, and are read for their metrics alone."""

    def __init__(self, policy: TransformersPolicy, config: TrainConfig, distributed: Distributed, lr: float) -> None:
        self.policy, self.config, self.distributed, self.lr = policy, config, distributed, lr
        self.model = model = policy.model
        self.rate = lr
        """The learning rate of the current update."""
        self.clock = Clock()
        """Times the phases of training; a learner puts its own here."""
        self.skipped = 0
        """Optimizer steps left out since the last one that was done."""
        self.not_finite = ""
        """What was not finite, where the last step was left out."""
        self.watched: Floats | None = None
        """(2, T) of an update that is watched: the sum of each token's log-probabilities in the passes of an epoch, and
        how many there were."""
        if config.policy.gradient_checkpointing:
            # Only activations between blocks are kept; the backward pass recomputes the others.
            # transformers 5.23 has renamed it, and warns of the old name
            new = getattr(model, "activation_checkpointing_enable", None)
            (new or model.gradient_checkpointing_enable)({"use_reentrant": False})
            for layer in (one for one in model.modules() if getattr(one, "gradient_checkpointing", False)):
                for name in [n for n, value in vars(layer).items() if "drop" in n and isinstance(value, float)]:
                    setattr(layer, name, 0.0)  # OPT's layers drop by themselves in training mode
        self.sharded = distributed.size > 1 or config.policy.precision == "bfloat16"
        if self.sharded:
            distributed.shard(model, config.policy.precision)
        self.named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        decay, fused = config.optim.weight_decay, distributed.device.type != "cpu"  # it makes no copies of all weights
        self.optimizer = torch.optim.AdamW([p for _, p in self.named], lr=lr, weight_decay=decay, fused=fused)

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Metrics]:
        """The loss of one pass and its metrics. Both are summed over the passes of a mini-batch."""
        raise NotImplementedError

    def train_epochs(self, batch: RolloutBatch, rng: np.random.Generator) -> list[Metrics]:
        """Train `epochs` times on the update, each time in newly drawn mini-batches; the metrics of every optimizer
        step."""
        steps: list[Metrics] = []
        for module in self.model.modules():
            # Checkpointed layers must be in training mode. The modules in them are not: they may have dropout, by which
            # the log-probabilities would be others than those of the sampler.
            module.training = getattr(module, "gradient_checkpointing", False)
        for _ in range(self.config.optim.epochs):
            with self.clock.phase("tensors"):
                parts = mini_batches(batch, self.config, rng)
            if self.watched is not None:
                self.watched[:] = 0.0
            for part in parts:
                if self.skipped < IN_A_ROW:  # else the run ends after this update
                    steps.append(self._step(batch, part))
        self.model.eval()
        self.optimizer.zero_grad()  # free gradients before the sampler needs the memory
        return steps

    def set_rate(self, update: int) -> None:
        """Set the learning rate of an update."""
        self.rate = rate(self.config.optim, update, self.config.updates) * self.lr
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = self.rate

    def _step(self, batch: RolloutBatch, part: MiniBatch) -> Metrics:
        """One optimizer step. It is skipped where the gradient is not finite."""
        self.optimizer.zero_grad()
        passes = []
        every = not (self.by_advantage and part.signal.any())  # a step without a gradient is one of momentum and decay
        learns = part.signal | every
        for rows, gradient in ((~learns, False), (learns, True)):  # a backward pass shards the weights again
            for tokens in self._passes(batch, part.rows[rows], part.weights[rows], self.config.optim.microbatch):
                with torch.set_grad_enabled(gradient):
                    loss, metrics = self.loss(tokens)
                if gradient:
                    (loss * self.distributed.size).backward()  # FSDP averages gradients over the ranks
                passes.append(metrics)
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in self.named], self.config.optim.grad_clip)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        metrics = _added(self.distributed.gather(_added(passes)))
        if not part.weights.any():
            metrics.pop("drift", None)  # of no token
        if torch.isfinite(norm):
            self.optimizer.step()
        self.skipped = 0 if torch.isfinite(norm) else self.skipped + 1
        self.not_finite = "the gradient" if math.isfinite(metrics.get("loss", 0.0)) else "the loss"
        return {
            **metrics,
            "grad_norm": norm.item(),
            "empty_steps": float(not part.signal.any()),
            "skipped_steps": float(self.skipped > 0),
        }

    def finite(self) -> bool:
        """Whether all weights are, on every rank, which all call this."""
        wrong = any(not bool(torch.isfinite(_local(weight)).all()) for _, weight in self.named)
        return not self.distributed.any(wrong)

    @torch.no_grad()
    def forward_no_grad(self, batch: RolloutBatch, what: Callable[[TokenBatch], Tensor]) -> Floats:
        """A value per response token (T,) from the current model, without gradients; `what` maps a pass to (B, R)."""
        by_token = np.zeros(len(batch.old))
        starts = (batch.ends - batch.response_length).tolist()
        size = self.config.optim.score_microbatch or self.config.optim.microbatch
        for part in self._passes(batch, np.arange(len(batch)), None, size):
            for row, values in zip(part.rows, what(part).tolist(), strict=True):
                length = len(batch.turns[row].response)
                by_token[starts[row] : starts[row] + length] = values[:length]
        # Each row was computed on one rank and is 0 on the others.
        return self.distributed.sum(by_token)

    def _passes(self, batch: RolloutBatch, rows: Ints, weights: Floats | None, size: int | None) -> list[TokenBatch]:
        rank, ranks, device = self.distributed.rank, self.distributed.size, self.distributed.device
        with self.clock.phase("tensors"):
            limits = (size, rank, ranks, self.config.optim.microbatch_tokens, self.policy.reach, self.policy.packs)
            return [part.to(device) for part in micro_batches(batch, rows, weights, self.policy.pad, *limits)]

    def save_optimizer(self, folder: Path) -> None:
        save_optimizer(folder, self.optimizer, self.named, self.distributed)

    def restore_optimizer(self, folder: Path) -> None:
        restore_optimizer(folder, self.optimizer, self.named, self.distributed)


def rate(optim: OptimConfig, update: int, updates: int) -> float:
    """The share of `optim.lr` that holds in one of `updates` updates, the first of which is 1.

    It rises in equal steps to 1 in update `warmup`. Afterwards "linear" and "cosine" fall and would reach 0 in the
    update after the last. It is a function of the update, so a resumed run needs no state.
    """
    if update < optim.warmup:
        return update / optim.warmup
    passed = max(0, update - optim.warmup - 1) / max(1, updates - optim.warmup)
    return {"constant": 1.0, "linear": 1.0 - passed, "cosine": (1.0 + math.cos(math.pi * passed)) / 2.0}[optim.schedule]


LARGEST = frozenset({"ratio_max"})
"""Metrics that are a maximum over passes and over optimizer steps."""
COUNTED = frozenset({"skipped_steps"})
"""Metrics that are a sum over optimizer steps."""


def mean(steps: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over the optimizer steps that have it; the largest for those in `LARGEST`, the sum for
    `COUNTED`."""
    names = dict.fromkeys(name for metrics in steps for name in metrics)
    columns = {name: [metrics[name] for metrics in steps if name in metrics] for name in names}
    reduce: dict[str, Callable[[Sequence[float]], float]] = {
        **dict.fromkeys(LARGEST, max),
        **dict.fromkeys(COUNTED, sum),
    }
    return {name: float(reduce.get(name, np.mean)(values)) for name, values in columns.items()}


def _local(weight: Tensor) -> Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight


def _added(parts: Sequence[Metrics]) -> Metrics:
    """The sum of each metric over parts of a mini-batch; the largest for those in `LARGEST`."""
    names = dict.fromkeys(name for part in parts for name in part)  # a pass of no turns has none
    return {name: (max if name in LARGEST else sum)(part[name] for part in parts if name in part) for name in names}
