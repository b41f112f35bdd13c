"""Started by torchrun: one update of the TRL adapter, in which every process plays a recorded group of its own.

Arguments: a model folder and the start of the names of the files written, one JSON file for each process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import recorded_groups
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from crbc_rl.adapters.trl import GroupRollouts, StepCreditTrainer, tasks

GROUPS = recorded_groups.read()
ROWS = recorded_groups.SIZE * recorded_groups.KWARGS["max_steps"]


class Given(StepCreditTrainer):
    """Plays the recorded replies of this process's group, and keeps what it was asked and what it trained on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.replies = [rollout.replies for rollout in GROUPS[self.accelerator.process_index].rollouts]
        self.asked: list[int] = []
        self.trained: list[tuple[str, float]] = []

    def _generate_single_turn(self, prompt_ids: Any, *args: Any) -> Any:
        said = [replies[len(self.asked)] for replies in self.replies if len(self.asked) < len(replies)]
        self.asked.append(len(prompt_ids))
        texts = said + [""] * (len(prompt_ids) - len(said))
        return [[*self.processing_class(text)["input_ids"], self.processing_class.eos_token_id] for text in texts], None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        for ids, there, row in zip(
            inputs["completion_ids"], inputs["completion_mask"], inputs["advantages"], strict=True
        ):
            self.trained.append((self.processing_class.decode(ids[there == 1]), float(row[0])))
        return super()._compute_loss(model, inputs)


def main(model: str, file: str) -> None:
    torch.set_num_threads(1)
    panel = tasks(max(recorded_groups.TASKS) + 1)
    config = GRPOConfig(
        output_dir=f"{file}-trainer",
        per_device_train_batch_size=ROWS,
        num_generations=ROWS,
        max_steps=1,
        loss_type="grpo",
        learning_rate=1e-3,
        shuffle_dataset=False,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Given(
        AutoModelForCausalLM.from_pretrained(model),
        config,
        processing_class=AutoTokenizer.from_pretrained(model),
        rollout_func=GroupRollouts(
            recorded_groups.ENV_ID, recorded_groups.SIZE, prompt="compact", **recorded_groups.KWARGS
        ),
        train_dataset=Dataset.from_list([panel[task] for task in recorded_groups.TASKS]),
    )
    trainer.train()
    weights = sum(float(weight.detach().double().abs().sum()) for weight in trainer.model.parameters())
    found = {"asked": trainer.asked, "trained": trainer.trained, "weights": weights}
    found |= {"played": [episode.rows for episode in trainer.rollout_func.played]}
    Path(f"{file}.{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
    trainer.accelerator.wait_for_everyone()  # a process that ends while another still reads from it may abort
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
