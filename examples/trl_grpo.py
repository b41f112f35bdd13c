"""TRL's GRPOTrainer learns Sokoban with step credit, on a CPU.

    python examples/trl_grpo.py                             # two updates, less than a minute
    python examples/trl_grpo.py --updates 10 --test 64      # some minutes, with the success on held-out tasks
    python examples/trl_grpo.py --updates 10 --test 64 --method grpo

It needs the package with its extra "trl", and nothing else. The model comes with the package. It has 0.8 million
parameters and imitates a scripted expert. An update plays 16 rooms, eight times each. Rooms differ much, and so does
the success of an update's rollouts. The held-out tasks are the same before and after.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # TRL says of every `rollout_func` that it is experimental
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig

import crbc_rl
from crbc_rl.adapters.trl import GroupRollouts, StepCreditTrainer, tasks

GROUPS, GROUP_SIZE, MINIBATCHES = 16, 8, 8


class Success(TrainerCallback):
    """Prints and keeps the success of each update's rollouts and of the held-out tasks."""

    def __init__(self) -> None:
        self.rollouts: list[float] = []
        self.held_out: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        for key, rates, name in (("reward", self.rollouts, "update"), ("eval_reward", self.held_out, "held out")):
            if key in logs:
                rates.append(logs[key])
                number = f"{len(rates):3}" if key == "reward" else ""
                print(f"{name + number:12} success {logs[key]:6.1%}   {time.process_time():6.1f} CPU-s", flush=True)


def shipped(name: str) -> Path:
    """A warm start of this project: inside the installed package, or beside it in a clone."""
    package = Path(crbc_rl.__file__).resolve().parent
    inside = package / "shipped"
    return (inside if inside.is_dir() else package.parent) / "warmstarts" / name


def settings(folder: str, rows: int, updates: int, lr: float, seed: int) -> GRPOConfig:
    """An update generates once and takes `MINIBATCHES` optimizer steps, each on as many rows."""
    return GRPOConfig(
        output_dir=folder,
        num_generations=rows,
        per_device_train_batch_size=GROUPS * rows // MINIBATCHES,
        per_device_eval_batch_size=GROUPS * rows,
        steps_per_generation=MINIBATCHES,
        gradient_accumulation_steps=1,
        max_steps=updates * MINIBATCHES,
        logging_steps=MINIBATCHES,
        max_completion_length=12,
        learning_rate=lr,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        seed=seed,
    )


def main(updates: int = 2, method: str = "crbc", test: int = 0, lr: float = 3e-4, seed: int = 0) -> Success:
    """What was printed."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    rollouts = GroupRollouts("CRBC-Sokoban-v0", GROUP_SIZE, prompt="compact", observation="text")
    success, start = Success(), shipped("sokoban-tiny")
    with tempfile.TemporaryDirectory() as folder:
        trainer = StepCreditTrainer(
            AutoModelForCausalLM.from_pretrained(start),
            settings(folder, rollouts.rows, updates, lr, seed),
            processing_class=AutoTokenizer.from_pretrained(start),
            rollout_func=rollouts,
            train_dataset=Dataset.from_list(tasks(2000)),
            eval_dataset=Dataset.from_list(tasks(test, "test")) if test else None,
            callbacks=[success],
            method=method,
            scale=0.1,
        )
        trainer.remove_callback(PrinterCallback)
        if test:
            trainer.evaluate()
        trainer.train()
        if test:
            trainer.evaluate()
    return success


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="TRL's GRPOTrainer learns Sokoban with step credit.")
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--method", default="crbc", help="an estimator of crbc_rl.credit")
    parser.add_argument("--test", type=int, default=0, help="held-out tasks, each played eight times before and after")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
