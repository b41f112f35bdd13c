"""The trained policy and its frozen reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crbc_rl.batches import Floats, RolloutBatch, TokenBatch
from crbc_rl.config import CLIPPED, TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.lora import adapt, load_adapters, save_adapters, without_adapters
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.training.checkpoint import write_state
from crbc_rl.training.files import files_of, share_files
from crbc_rl.training.loss import objective_of, seen
from crbc_rl.training.trainable import Metrics, Trainable, mean


class Actor(Trainable):
    """pi_theta and pi_ref.

    pi_theta starts from `checkpoint` if given, else from the config's model. pi_ref is the config's model.
    """

    def __init__(self, config: TrainConfig, distributed: Distributed, checkpoint: Path | None = None) -> None:
        lora = config.policy.lora_rank
        source = config.model if lora else checkpoint or config.model
        policy = load_policy(source, distributed.device, config.rollout, config.policy.attention)
        if lora:
            adapt(policy.model, lora, config.seed)
            policy.adapted = True
            if checkpoint is not None:
                load_adapters(policy.model, checkpoint)
        self.objective = objective_of(config)
        self.by_advantage = config.loss.objective == CLIPPED and not (config.loss.kl or config.loss.entropy)
        super().__init__(policy, config, distributed, config.optim.lr)
        self.seen: Floats | None = None
        self.reference: TransformersPolicy | None = None
        if (
            config.loss.kl and not lora
        ):  # loaded after the policy is sharded, so that only one model at a time is unsharded
            self.reference = load_policy(config.model, distributed.device, None, config.policy.attention)
            self.reference.model.requires_grad_(False)
            if self.sharded:
                distributed.shard(self.reference.model, config.policy.precision, config.policy.offload_reference)
        if checkpoint is not None:
            self.restore_optimizer(checkpoint)

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Metrics]:
        """The loss and metrics of one pass."""
        temperature = self.config.rollout.temperature
        with self.clock.phase("reference"):
            reference = self._reference(batch)
        logprobs, entropy = self.policy.logprobs(batch, temperature, entropy_counts=self.config.loss.entropy > 0)
        if self.watched is not None:
            for row, values in zip(batch.rows, logprobs.tolist(), strict=True):
                begin, end = self._starts[row : row + 2]
                self.watched[:, begin:end] += np.stack([values[: end - begin], np.ones(end - begin)])
        if not batch.rows:  # of a rank that has no turn in this pass, and shards weights with others
            return logprobs.sum(), {}
        return self.objective(logprobs, entropy, reference, batch, self.config.loss)

    @torch.no_grad()
    def _reference(self, batch: TokenBatch) -> Tensor | None:
        """The reference's log-probabilities (B, R); None without a KL term."""
        temperature = self.config.rollout.temperature
        if self.reference is not None:
            return self.reference.logprobs(batch, temperature)[0]
        if self.policy.adapted and self.config.loss.kl:
            with without_adapters(self.policy.model):
                return self.policy.logprobs(batch, temperature)[0]
        return None

    def optimise(self, batch: RolloutBatch, rng: np.random.Generator, watch: bool = False) -> Metrics:
        """Maximise the objective and return the mean metrics over optimizer steps. Of an update that is to be watched,
        `seen` has what the steps of its last epoch saw of each token, as in `RolloutBatch`.

        `drift`, where the objective has it, is that of the first step with a reply that counts: the distance between
        the log-probabilities of sampling and of training before the weights change.
        """
        if self.config.loss.mask_truncated:
            batch = replace(batch, masked=batch.cut(self.policy.ends))
        self._starts = np.concatenate([[0], batch.ends]).tolist()
        self.watched = np.zeros((2, len(batch.old))) if watch else None
        steps = self.train_epochs(batch, rng)
        self.policy.forget()  # a fused optimizer does not count its changes, by which the policy would know
        if self.reference is not None and self.sharded:
            self.reference.model.reshard()  # no backward pass frees what its forward passes gathered
        self.seen = None
        if self.watched is not None:
            total, passes = self.distributed.sum(self.watched)
            self.seen = seen(batch, np.where(passes > 0, total / passes.clip(1), np.nan), self.config.loss)
            self.watched = None
        drifts = [{"drift": metrics["drift"]} for metrics in steps if "drift" in metrics]
        return {**mean(steps), **_advantages(batch), **next(iter(drifts), {})}

    def score(self, batch: RolloutBatch) -> Floats:
        """The log-probability of every response token under the current pi_theta, (T,)."""
        return self.forward_no_grad(batch, lambda part: self.policy.logprobs(part, self.config.rollout.temperature)[0])

    def save(self, folder: Path, state: dict[str, Any], written: Path | None = None) -> None:
        """Write the checkpoint into `folder`; every rank calls this. `written` has the model as it is now, if any."""
        if self.policy.adapted:  # first: no rank may gather shards while rank 0 writes, since NCCL waits minutes alone
            save_adapters(self.policy.model, folder, self.distributed.main)
        if written is None:
            self.policy.save(folder, self.distributed.main)
        elif self.distributed.main:
            share_files(files_of(written), folder)
        self.save_optimizer(folder)
        if self.distributed.main:
            write_state(folder, state)
        self.distributed.barrier()  # a critic gathers its shards next


def _advantages(batch: RolloutBatch) -> Metrics:
    """The advantages of the update, over steps; over tokens where tokens have their own. Masked steps have none."""
    kept = np.ones(len(batch), dtype=bool) if batch.masked is None else ~batch.masked
    if not kept.any():
        return dict.fromkeys(("advantage_abs", "advantage_mean", "advantage_min", "advantage_max"), 0.0)
    if batch.token_advantage is None:
        values = batch.advantage[kept]
        size = np.abs(values)
    else:
        values = batch.token_advantage[np.repeat(kept, batch.response_length)]
        size = batch.mean_by_step(np.abs(batch.token_advantage))[kept]
    return {
        "advantage_abs": float(size.mean()),
        "advantage_mean": float(values.mean()),
        "advantage_min": float(values.min()),
        "advantage_max": float(values.max()),
    }
