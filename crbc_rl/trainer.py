"""The optimisation of one update: rows in, one optimizer step per mini-batch, in passes that fit the memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crbc_rl.checkpoint import restore_optimizer, save_optimizer, write_state
from crbc_rl.config import TrainConfig
from crbc_rl.loss import policy_loss
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.tokens import Row, TokenBatch, micro_batches, weigh
from crbc_rl.world import World

Figures = dict[str, float]


class Trainer:
    """pi_theta and the frozen pi_ref, the optimizer, and their shares on the processes of `world`.

    pi_theta starts from `checkpoint` where there is one, else from the config's model, which also is pi_ref.
    """

    def __init__(self, config: TrainConfig, world: World, checkpoint: Path | None = None) -> None:
        self.config, self.world = config, world
        self.policy = TransformersPolicy.load(checkpoint or config.model, world.device)
        self.reference = self._reference(checkpoint) if config.loss.kl else None
        self.sharded = world.size > 1 or config.policy.precision == "bfloat16"
        if config.policy.gradient_checkpointing:
            self.policy.checkpoint_gradients()
        if self.sharded:
            world.shard(self.policy.model, config.policy.precision)
            if self.reference is not None:
                world.shard(self.reference.model, config.policy.precision, config.policy.offload_reference)
        self.named = [(name, p) for name, p in self.policy.model.named_parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            [p for _, p in self.named], lr=config.optim.lr, weight_decay=config.optim.weight_decay
        )
        if checkpoint is not None:
            restore_optimizer(checkpoint, self.optimizer, self.named)

    def _reference(self, checkpoint: Path | None) -> TransformersPolicy:
        if checkpoint is None:
            reference = copy.deepcopy(self.policy)
        else:
            reference = TransformersPolicy.load(self.config.model, self.world.device)
        reference.model.requires_grad_(False)
        return reference

    # ---- an update ----------------------------------------------------------------------------

    def optimise(self, groups: Sequence[Sequence[Row]], rng: np.random.Generator) -> Figures:
        """`epochs` passes over the groups in shuffled order, in mini-batches; the mean of each figure.

        Groups stay in one piece: their members repeat each other's turns, which a pass reads once. `drift`
        is of the first mini-batch, where nothing has been learned yet: how far the log-probabilities of
        sampling and of training are apart.
        """
        settings = self.config.optim
        steps: list[Figures] = []
        for _ in range(settings.epochs):
            rows = [row for g in rng.permutation(len(groups)) for row in groups[g]]
            steps += [
                self._descend(rows[start : start + settings.minibatch])
                for start in range(0, len(rows), settings.minibatch)
            ]
        means = {name: float(np.mean([figures[name] for figures in steps])) for name in steps[0]}
        return {**means, "drift": steps[0]["drift"]}

    def _descend(self, rows: Sequence[Row]) -> Figures:
        """One optimizer step; left out where the gradient is not finite."""
        self.optimizer.zero_grad()
        passes = [self._backward(batch) for batch in self._passes(weigh(rows, self.config.loss.aggregation))]
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

    def _backward(self, batch: TokenBatch) -> Figures:
        temperature = self.config.rollout.temperature
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                reference = self.reference.logprobs(batch, temperature)[0]
        logprobs, entropy = self.policy.logprobs(batch, temperature)
        loss, figures = policy_loss(logprobs, entropy, reference, batch, self.config.loss)
        (loss * self.world.size).backward()  # sharded gradients are averaged over the processes
        return figures

    @torch.no_grad()
    def score(self, rows: Sequence[Row]) -> list[list[float]]:
        """The log-probability of every response token under pi_theta as it stands."""
        found: dict[int, list[float]] = {}
        for batch in self._passes(rows):
            logprobs, _ = self.policy.logprobs(batch, self.config.rollout.temperature)
            found |= zip(batch.places, logprobs.tolist(), strict=True)
        everywhere = {place: values for part in self.world.gather(found) for place, values in part.items()}
        return [everywhere[i][: len(row.turn.response)] for i, row in enumerate(rows)]

    def _passes(self, rows: Sequence[Row]) -> list[TokenBatch]:
        size, world = self.config.optim.microbatch, self.world
        return [batch.to(world.device) for batch in micro_batches(rows, self.policy.pad, size, world.rank, world.size)]

    # ---- files --------------------------------------------------------------------------------

    def save(self, place: Path, state: dict[str, Any]) -> None:
        """Fill a checkpoint's folder; every process calls this."""
        self.policy.save(place, self.world.main)
        save_optimizer(place, self.optimizer, self.named, self.world)
        if self.world.main:
            write_state(place, state)


def _added(parts: Sequence[Figures]) -> Figures:
    """Figures of parts of a mini-batch, put together: sums, and of ratio_max the greatest."""
    names = parts[0]
    return {name: (max if name == "ratio_max" else sum)(part[name] for part in parts) for name in names}
