"""A model that is optimised over rows: one optimizer step per mini-batch, in passes that fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from crbc_rl.batches import Row, TokenBatch, micro_batches, weigh
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import World
from crbc_rl.training.checkpoint import restore_optimizer, save_optimizer

Figures = dict[str, float]


class Optimised:
    """`model`, its optimizer, and their shares on the processes of `world`. What is learned of a pass is said by
    `loss`."""

    def __init__(self, model: PreTrainedModel, config: TrainConfig, world: World, pad: int, lr: float) -> None:
        self.model, self.config, self.world, self.pad = model, config, world, pad
        if config.policy.gradient_checkpointing:
            # No activations are kept but those between blocks, at the price of a second forward.
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.sharded = world.size > 1 or config.policy.precision == "bfloat16"
        if self.sharded:
            world.shard(model, config.policy.precision)
        self.named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW([p for _, p in self.named], lr=lr, weight_decay=config.optim.weight_decay)

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Figures]:
        """The loss of one pass and its figures; over the passes of a mini-batch both add up."""
        raise NotImplementedError

    def descend(self, groups: Sequence[Sequence[Row]], rng: np.random.Generator) -> list[Figures]:
        """`epochs` passes over the groups in shuffled order, in mini-batches; the figures of each of these.

        Groups stay in one piece: their members repeat each other's turns, which a pass reads once.
        """
        settings = self.config.optim
        steps: list[Figures] = []
        # Checkpointing is done in training mode alone, in which a model cannot sample; it has no dropout.
        self.model.train(self.config.policy.gradient_checkpointing)
        for _ in range(settings.epochs):
            rows = [row for g in rng.permutation(len(groups)) for row in groups[g]]
            steps += [
                self._step(rows[start : start + settings.minibatch])
                for start in range(0, len(rows), settings.minibatch)
            ]
        self.model.eval()
        self.optimizer.zero_grad()  # no gradients lie about while others need the memory
        return steps

    def _step(self, rows: Sequence[Row]) -> Figures:
        """One optimizer step; left out where the gradient is not finite."""
        self.optimizer.zero_grad()
        passes = []
        for batch in self._passes(weigh(rows, self.config.loss.aggregation), self.config.optim.microbatch):
            loss, figures = self.loss(batch)
            (loss * self.world.size).backward()  # sharded gradients are averaged over the processes
            passes.append(figures)
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in self.named], self.config.optim.grad_clip)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if torch.isfinite(norm):
            self.optimizer.step()
        return {
            **_added(self.world.gather(_added(passes))),
            "advantage_abs": float(np.mean([np.abs(row.advantage).mean() for row in rows])),
            "grad_norm": norm.item(),
            "skipped": float(not torch.isfinite(norm)),
        }

    @torch.no_grad()
    def read(self, rows: Sequence[Row], what: Callable[[TokenBatch], Tensor]) -> list[list[float]]:
        """`what` the model as it stands says of every response token; it maps a batch to (B, R)."""
        found: dict[int, list[float]] = {}
        size = self.config.optim.score_microbatch or self.config.optim.microbatch
        for batch in self._passes(rows, size):
            found |= zip(batch.places, what(batch).tolist(), strict=True)
        everywhere = {place: values for part in self.world.gather(found) for place, values in part.items()}
        return [everywhere[i][: len(row.turn.response)] for i, row in enumerate(rows)]

    def _passes(self, rows: Sequence[Row], size: int | None) -> list[TokenBatch]:
        world = self.world
        return [batch.to(world.device) for batch in micro_batches(rows, self.pad, size, world.rank, world.size)]

    def save_optimizer(self, place: Path) -> None:
        save_optimizer(place, self.optimizer, self.named, self.world)

    def restore_optimizer(self, place: Path) -> None:
        restore_optimizer(place, self.optimizer, self.named)


def mean(steps: Sequence[Figures]) -> Figures:
    """The mean of each figure."""
    return {name: float(np.mean([figures[name] for figures in steps])) for name in steps[0]}


def _added(parts: Sequence[Figures]) -> Figures:
    """Figures of parts of a mini-batch, put together: sums, and of ratio_max the greatest."""
    names = parts[0]
    return {name: (max if name == "ratio_max" else sum)(part[name] for part in parts) for name in names}
