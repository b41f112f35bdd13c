"""PPO's learned critic: a value for every response token. Group-based methods need none.

The paper names GAE and the critic's learning rate. The rest is verl-agent's: advantages are estimated inside one reply
(`credit.gae` with gamma = lam = 1), the reply's last token gets the outcome of the whole episode, and no value is
bootstrapped from one environment step to the next.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from anchors import EmpiricalProcess
from crbc_rl.batches import RolloutBatch, TokenBatch
from crbc_rl.config import TrainConfig
from crbc_rl.credit.gae import gae, row_rewards, whiten
from crbc_rl.distributed import Distributed, full_tensors
from crbc_rl.policies.load import load_policy
from crbc_rl.training.checkpoint import restore_weights
from crbc_rl.training.trainable import Metrics, Trainable, mean

VALUE_CLIP = 0.5
"""Clip range of the value loss: the largest change of a value in one update, as in public trainers."""

FILE = "critic.safetensors"


class Critic(Trainable):
    """V(h, y_<k): the config's model, text or vision, with a scalar head in place of the logits. The head starts at 0,
    so all values do."""

    def __init__(self, config: TrainConfig, distributed: Distributed, checkpoint: Path | None = None) -> None:
        reader = load_policy(config.model, distributed.device, None, config.policy.attention)
        model = reader.model
        head = nn.Linear(model.config.get_text_config().hidden_size, 1, device=distributed.device)
        for weight in head.parameters():
            nn.init.zeros_(weight)
        model.set_output_embeddings(head)
        if checkpoint is not None:
            restore_weights(checkpoint / "critic" / FILE, model)
        super().__init__(reader, config, distributed, config.critic.lr)
        if checkpoint is not None:
            self.restore_optimizer(checkpoint / "critic")

    def credit(self, batch: RolloutBatch) -> RolloutBatch:
        """The batch with the critic's current values, its target returns, and whitened advantages per token."""
        value = self.forward_no_grad(batch, self.values)
        reward = np.zeros(len(value))
        reward[batch.ends - 1] = row_rewards(
            EmpiricalProcess.from_interned(batch.rollouts), reward=self.config.credit.earns
        )
        advantage, returns = gae(reward, value, batch.response_length)
        whitened = whiten(advantage)
        return replace(
            batch, advantage=batch.mean_by_step(whitened), token_advantage=whitened, value=value, returns=returns
        )

    def values(self, batch: TokenBatch) -> Tensor:
        """The value at each response token, before it is generated, (B, R)."""
        values = self.policy.at_responses(batch, lambda head, hidden: head(hidden))
        return self.policy.by_row(batch, values[:, 0].float())[batch.turn]

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Metrics]:
        """Half the squared error, of the value or of the value clipped to `VALUE_CLIP` around the old one, whichever is
        larger (Schulman et al. 2017; as in public trainers)."""
        values, targets, old = self.values(batch), batch.returns, batch.values
        assert targets is not None
        assert old is not None
        near = old + (values - old).clamp(-VALUE_CLIP, VALUE_CLIP)
        error = torch.maximum((values - targets) ** 2, (near - targets) ** 2)
        loss = 0.5 * (error * batch.weights[:, None] * batch.response_mask).sum()
        return loss, {"loss": loss.item()}

    def optimise(self, batch: RolloutBatch, rng: np.random.Generator) -> Metrics:
        """Fit the returns and return the mean metrics over optimizer steps."""
        metrics = mean(self.train_epochs(batch, rng))
        return {
            "value_loss": metrics["loss"],
            "value_grad_norm": metrics["grad_norm"],
            "value_skipped_steps": metrics["skipped_steps"],
        }

    def save(self, folder: Path) -> None:
        """Write the folder `critic` of a checkpoint; every rank calls this."""
        place = folder / "critic"
        weights = {
            name: tensor.cpu().contiguous() for name, tensor in full_tensors(self.model) if self.distributed.main
        }
        if self.distributed.main:
            place.mkdir()
            save_file(weights, place / FILE)
        self.distributed.barrier()
        self.save_optimizer(place)
