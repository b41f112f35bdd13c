"""A pretrained language model takes two updates inside TRL and inside verl: `crbc model get smollm2-135m` first.

Untaught, it gives no valid reply, so there is no credit: these say that it loads, answers and is trained.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crbc_rl.policies.files import named_folder

pytestmark = pytest.mark.full
ROOT = Path(__file__).resolve().parents[3]
MODEL = "smollm2-135m"
UPDATES, GROUPS, SIZE, STEPS, REPLY = 2, 2, 2, 2, 24
ENV = {"observation": "text", "panel": "v3", "max_steps": STEPS}


def test_two_updates_inside_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from crbc_rl.adapters.trl import GroupRollouts, StepCreditTrainer, tasks

    folder = named_folder(MODEL)
    rollouts = GroupRollouts("CRBC-Sokoban-v0", SIZE, prompt="compact", **ENV)
    settings = GRPOConfig(
        output_dir=str(tmp_path),
        num_generations=rollouts.rows,
        per_device_train_batch_size=rollouts.rows,
        steps_per_generation=GROUPS,
        gradient_accumulation_steps=1,
        max_steps=UPDATES * GROUPS,
        logging_steps=1,
        max_completion_length=REPLY,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
    )
    trainer = StepCreditTrainer(
        AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        settings,
        processing_class=AutoTokenizer.from_pretrained(folder),
        rollout_func=rollouts,
        train_dataset=Dataset.from_list(tasks(8)),
        peft_config=LoraConfig(r=4, target_modules="all-linear"),
        method="crbc",
    )
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == UPDATES * GROUPS
    assert all(math.isfinite(entry["loss"]) and math.isfinite(entry["grad_norm"]) for entry in logged)
    lengths = [entry["completions/mean_length"] for entry in logged if "completions/mean_length" in entry]
    assert len(lengths) == UPDATES and min(lengths) > 1


IN_VERL = """
import json, sys
from pathlib import Path
from command import train
print("LOG" + json.dumps(train(Path(sys.argv[1]), *sys.argv[2:])))
"""


def test_two_updates_inside_verl(tmp_path: Path) -> None:
    overrides = [
        f"actor_rollout_ref.model.path={named_folder(MODEL)}",
        f"data.env.kwargs={{{', '.join(f'{name}: {value}' for name, value in ENV.items())}}}",
        f"data.train_batch_size={GROUPS}",
        f"data.max_response_length={REPLY}",
        f"actor_rollout_ref.rollout.n={SIZE}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={GROUPS}",
        "actor_rollout_ref.actor.optim.lr=1e-6",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        f"trainer.total_training_steps={UPDATES}",
    ]
    python = ROOT / ".venv-verl/bin/python"
    assert python.exists(), "bash scripts/setup.sh verl makes it"
    own = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests_verl'}:{ROOT}"}
    ran = subprocess.run(
        [python, "-c", IN_VERL, tmp_path, *overrides], env=own, capture_output=True, text=True, timeout=1500
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    log: list[dict[str, Any]] = json.loads(ran.stdout.partition("LOG")[2])
    told = [record for record in log if "actor/grad_norm" in record]
    assert len(told) == UPDATES
    for record in told:
        assert math.isfinite(record["actor/pg_loss"]) and record["actor/grad_norm"] > 0
        assert record["crbc/broken_groups"] == 0.0
