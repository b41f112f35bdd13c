"""The policy that is trained, its frozen reference, and the critic where there is one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crbc_rl.checkpoint import write_state
from crbc_rl.config import TrainConfig
from crbc_rl.loss import policy_loss
from crbc_rl.optimised import Figures, Optimised
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.tokens import Row, TokenBatch
from crbc_rl.world import World


class Trainer(Optimised):
    """pi_theta and pi_ref.

    pi_theta starts from `checkpoint` where there is one, else from the config's model, which also is pi_ref.
    """

    def __init__(self, config: TrainConfig, world: World, checkpoint: Path | None = None) -> None:
        self.policy = TransformersPolicy.load(checkpoint or config.model, world.device)
        self.reference: TransformersPolicy | None = None
        if config.loss.kl:
            start = None if checkpoint is None else TransformersPolicy.load(config.model, world.device)
            self.reference = start or copy.deepcopy(self.policy)
            self.reference.model.requires_grad_(False)
        super().__init__(self.policy.model, config, world, self.policy.pad, config.optim.lr)
        if self.sharded and self.reference is not None:
            world.shard(self.reference.model, config.policy.precision, config.policy.offload_reference)
        if checkpoint is not None:
            self.restore_optimizer(checkpoint)

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Figures]:
        """The clipped objective."""
        temperature = self.config.rollout.temperature
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                reference = self.reference.logprobs(batch, temperature)[0]
        logprobs, entropy = self.policy.logprobs(batch, temperature)
        return policy_loss(logprobs, entropy, reference, batch, self.config.loss)

    def optimise(self, groups: Sequence[Sequence[Row]], rng: np.random.Generator) -> Figures:
        """As for any model. `drift` is of the first mini-batch: how far the log-probabilities of sampling and of
        training are apart."""
        figures = super().optimise(groups, rng)
        kept = {name: value for name, value in figures.items() if not name.startswith("first/")}
        return {**kept, "drift": figures["first/drift"]}

    def score(self, rows: Sequence[Row]) -> list[list[float]]:
        """The log-probability of every response token under pi_theta as it stands."""
        return self.read(rows, lambda batch: self.policy.logprobs(batch, self.config.rollout.temperature)[0])

    def save(self, place: Path, state: dict[str, Any]) -> None:
        """Fill a checkpoint's folder; every process calls this."""
        self.policy.save(place, self.world.main)
        self.save_optimizer(place)
        if self.world.main:
            write_state(place, state)
