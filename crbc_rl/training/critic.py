"""PPO's learned critic: a value for every response token, the baseline that group methods do without.

As in the paper's PPO runs, advantages are estimated inside one reply (`credit.gae` with gamma = lam = 1): its last
token earns the outcome of the whole episode, and no value is carried from one environment step to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from anchors import EmpiricalProcess, InternedRollouts
from crbc_rl.batches import Row, TokenBatch
from crbc_rl.config import TrainConfig
from crbc_rl.credit.gae import gae, row_rewards, whiten
from crbc_rl.distributed import World, whole_tensors
from crbc_rl.policies.load import load_policy
from crbc_rl.training.trainable import Figures, Optimised, mean

VALUE_CLIP = 0.5
"""How far a value may move in an update before its loss stops pulling, as in the public trainers."""

FILE = "critic.safetensors"

Rows = list[list[Row]]


class Critic(Optimised):
    """V(h, y_<k): the config's model, of text or of frames too, with one value in the place of its logits, which is 0
    at first."""

    def __init__(self, config: TrainConfig, world: World, checkpoint: Path | None = None) -> None:
        self.reader = load_policy(config.model, world.device)
        model = self.reader.model
        head = nn.Linear(model.config.get_text_config().hidden_size, 1, device=world.device)
        for weight in head.parameters():
            nn.init.zeros_(weight)
        model.set_output_embeddings(head)
        if checkpoint is not None:
            self.reader.load_weights(load_file(checkpoint / "critic" / FILE).items())
        super().__init__(model, config, world, self.reader.pad, config.critic.lr)
        if checkpoint is not None:
            self.restore_optimizer(checkpoint / "critic")

    def credit(self, groups: Rows, sample: InternedRollouts) -> tuple[Rows, Rows]:
        """The rows with whitened advantages per token; and for the critic rows whose `advantage` are the returns it
        is to learn and whose `old` are its values so far."""
        rows = [row for group in groups for row in group]
        values = self.read(rows, self.values)
        length = np.array([len(found) for found in values])
        ends = np.cumsum(length)
        reward = np.zeros(ends[-1])
        reward[ends - 1] = row_rewards(EmpiricalProcess.from_interned(sample))
        advantage, returns = gae(reward, np.concatenate(values), length)
        gains, targets = np.split(whiten(advantage), ends[:-1]), np.split(returns, ends[:-1])
        actors = iter([replace(row, advantage=gain.tolist()) for row, gain in zip(rows, gains, strict=True)])
        critics = iter(
            [
                replace(row, advantage=target.tolist(), old=old, correction=None)
                for row, target, old in zip(rows, targets, values, strict=True)
            ]
        )
        return [[next(actors) for _ in g] for g in groups], [[next(critics) for _ in g] for g in groups]

    def values(self, batch: TokenBatch) -> Tensor:
        """The value before each response token, (B, R)."""
        return self.reader.logits(batch)[:, :-1, 0].float()[batch.turn]

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Figures]:
        """Half the squared error, of the value or of the value kept within `VALUE_CLIP` of the old one, whichever
        is more (Schulman et al. 2017; what public trainers run)."""
        values, targets, old = self.values(batch), batch.advantages, batch.old_logprobs
        near = old + (values - old).clamp(-VALUE_CLIP, VALUE_CLIP)
        error = torch.maximum((values - targets) ** 2, (near - targets) ** 2)
        loss = 0.5 * (error * batch.weights[:, None] * batch.response_mask).sum()
        return loss, {"value_loss": loss.item()}

    def optimise(self, groups: Sequence[Sequence[Row]], rng: np.random.Generator) -> Figures:
        """Learn the returns; the means over optimizer steps."""
        figures = mean(self.descend(groups, rng))
        return {"value_loss": figures["value_loss"], "value_grad_norm": figures["grad_norm"]}

    def save(self, place: Path) -> None:
        """Fill the folder `critic` of a checkpoint; every process calls this."""
        folder = place / "critic"
        weights = {name: tensor.cpu().contiguous() for name, tensor in whole_tensors(self.model) if self.world.main}
        if self.world.main:
            folder.mkdir()
            save_file(weights, folder / FILE)
        self.world.barrier()
        self.save_optimizer(folder)
