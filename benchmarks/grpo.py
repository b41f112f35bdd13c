"""TRL's GRPO trainer on our rows (`trl.GRPOTrainer`, Apache 2.0), for comparison with `crbc_rl.training.actor.Actor`.

Only the source of TRL's rows is replaced. Its loss, passes, reference, optimizer and loop are its own.
`tests/rl/training/test_parity.py` compares the two losses and their gradients.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer, PrinterCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad

from crbc_rl.batches import Ints, RolloutBatch
from crbc_rl.config import TrainConfig

LOSS_TYPES = {"token": "dapo", "step": "grpo"}
"""TRL's name of each of our aggregations. It has none for "group"."""


class RowsTrainer(GRPOTrainer):
    """A GRPO trainer that receives its rows, one mini-batch per optimizer step, instead of generating them."""

    batch: RolloutBatch
    minibatches: Iterator[Ints]
    _begun: float
    seconds: float
    """CPU seconds of the last `optimise`, without the setup of its loop."""

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Tensor]:
        self._begun = self._begun or time.process_time()
        return self.inputs(self.batch, next(self.minibatches))

    def inputs(self, batch: RolloutBatch, rows: Ints) -> dict[str, Tensor]:
        """The input of its loss: one row per turn, repeated ones too, with log-probabilities of its own reference."""
        prompts = [torch.tensor(batch.turns[row].prompt) for row in rows]
        replies = [torch.tensor(batch.turns[row].response) for row in rows]
        old = np.split(batch.old, batch.ends[:-1])
        filler = self.processing_class.pad_token_id
        found = {
            "prompt_ids": pad(prompts, filler, "left"),
            "prompt_mask": pad([torch.ones_like(ids) for ids in prompts], 0, "left"),
            "completion_ids": pad(replies, filler, "right"),
            "completion_mask": pad([torch.ones_like(ids) for ids in replies], 0, "right"),
            "advantages": torch.from_numpy(batch.advantage[rows]).float(),
            "old_per_token_logps": pad([torch.from_numpy(old[row]).float() for row in rows], 0.0, "right"),
            "num_items_in_batch": torch.tensor(sum(map(len, replies))),
        }
        if self.ref_model is not None:
            found["ref_per_token_logps"] = self.score(self.ref_model, found)
        return found

    @torch.no_grad()
    def score(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The log-probability of every token of the replies."""
        ids, mask = (torch.cat([inputs[f"prompt_{x}"], inputs[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
        return self._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].shape[1])[0]

    def sample(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """A reply to each prompt."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return self._generate_single_turn([list(ids) for ids in prompts], None, {}, 1)[0]

    def optimise(self, batch: RolloutBatch, minibatches: Sequence[Ints]) -> list[dict[str, float]]:
        """Run one optimizer step per mini-batch and return what TRL logged of each."""
        self.args.max_steps = len(minibatches)
        self.batch, self.minibatches, self._begun = batch, iter(minibatches), 0.0
        self.train()
        self.seconds = time.process_time() - self._begun
        return [entry for entry in self.state.log_history if "grad_norm" in entry]


def grpo_trainer(folder: Path, config: TrainConfig, output: Path) -> RowsTrainer:
    """TRL's trainer with the settings of `config`; the checkpoint in `folder` is both its model and its reference.

    It runs in float32 and without gradient checkpointing, as ours does here. `delta` is TRL's name of the dual clip. It
    clips the ratio itself, which is equivalent only where `dual_clip` exceeds 1 + `clip`. TRL's default multiplies the
    KL of a token by its ratio (`use_bias_correction_kl`); eq. 15 does not.
    """
    settings, loss = config.optim, config.loss
    disable_progress_bar()
    arguments = _arguments(
        output_dir=str(output),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=settings.minibatch,
        num_generations=2,
        max_completion_length=config.rollout.max_new_tokens,
        temperature=config.rollout.temperature,
        top_k=0,
        loss_type=LOSS_TYPES[loss.aggregation],
        beta=loss.kl,
        use_bias_correction_kl=False,
        epsilon=loss.clip,
        delta=loss.dual_clip,
        entropy_coef=loss.entropy,
        learning_rate=settings.lr,
        lr_scheduler_type="constant",
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.grad_clip,
        max_steps=1,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
    )
    trainer = RowsTrainer(
        model=str(folder),
        reward_funcs=_no_reward,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["no prompt"] * settings.minibatch}),
        processing_class=AutoTokenizer.from_pretrained(folder, local_files_only=True),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(**settings: Any) -> GRPOConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about gradient checkpointing, from TRL's own default
        return GRPOConfig(**settings)


def _no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)
