"""TRL: its loss gets the credit of each step, at that step's own tokens, and nothing of fillers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from anchors import RolloutGroup
from crbc_envs import ChatEpisode
from crbc_rl import credit
from crbc_rl.adapters.trl import GroupRollouts, StepCreditTrainer, success_reward, tasks

GROUPS, SIZE, STEPS = 2, 3, 4
ROWS = GROUPS * SIZE * STEPS

Row = tuple[tuple[int, ...], tuple[int, ...], float]


class Spy(StepCreditTrainer):
    """Keeps the rows that reach TRL's loss, and what was played."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trained: list[Row] = []
        self.fillers = 0

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        for row in range(len(inputs["prompt_ids"])):
            prompt, reply, mask = _row(inputs, row)
            credits = inputs["advantages"][row][: len(reply)]
            assert inputs["advantages"].shape == inputs["completion_ids"].shape
            if mask.any():
                assert len(set(credits.tolist())) == 1
                self.trained.append((prompt, reply, float(credits[0])))
            else:
                assert not credits.any()
                self.fillers += 1
        return super()._compute_loss(model, inputs)


def _row(inputs: dict[str, Any], row: int) -> tuple[tuple[int, ...], tuple[int, ...], torch.Tensor]:
    prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row] == 1]
    there = inputs["completion_mask"][row] == 1
    return tuple(prompt.tolist()), tuple(inputs["completion_ids"][row][there].tolist()), inputs["tool_mask"][row][there]


def config(folder: Path, **changes: Any) -> GRPOConfig:
    options = {
        "per_device_train_batch_size": ROWS // 2,
        "steps_per_generation": 2,
        "gradient_accumulation_steps": 1,
        "num_generations": SIZE * STEPS,
        "max_completion_length": 3,
        "max_steps": 2,
        "beta": 0.0,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        **changes,
    }
    return GRPOConfig(output_dir=str(folder), **options)


@pytest.mark.parametrize("method", ["crbc", "grpo"])
def test_the_loss_gets_the_credit_of_its_rows(method: str, model: Path, tmp_path: Path) -> None:
    rollouts = GroupRollouts("CRBC-Sokoban-v0", SIZE, STEPS, prompt="compact", observation="text", panel="clean")
    shorten(rollouts)
    trainer = Spy(
        AutoModelForCausalLM.from_pretrained(model),
        args=config(tmp_path),
        processing_class=AutoTokenizer.from_pretrained(model),
        rollout_func=rollouts,
        reward_funcs=success_reward,
        train_dataset=Dataset.from_list(tasks(50)),
        method=method,
        scale=0.5,
    )
    trainer.train()
    members = range(GROUPS * SIZE)
    played = [rollouts.episodes[m].rollout() for m in members]
    groups = [RolloutGroup(played[g * SIZE : (g + 1) * SIZE]) for g in range(GROUPS)]
    wanted = np.concatenate([a for group in credit.advantages_batch(groups, method) for a in group])
    turns = [tuple(map(tuple, turn)) for m in members for turn in rollouts.turns[m]]
    assert trainer.fillers == ROWS - len(turns) > 0
    ours = sorted((prompt, reply, 0.5 * value) for (prompt, reply), value in zip(turns, wanted, strict=True))
    for (prompt, reply, found), (own, said, value) in zip(sorted(trainer.trained), ours, strict=True):
        assert (prompt, reply) == (own, said) and found == pytest.approx(value, abs=1e-6)
    assert np.ptp(wanted) > 0


def shorten(rollouts: GroupRollouts) -> None:
    """Some members end early, by luck or not: here the second of each group after two steps, the first in success."""
    make, count = rollouts.make, iter(range(99))

    class Short(ChatEpisode):
        number = 0

        def reply(self, text: str) -> Any:
            messages = super().reply(text)
            if self.number % SIZE == 1 and len(self._steps) == 2 and messages:
                self._outcome = {"length": 2, "final_anchor": None, "truncated": False, "success": True, "score": 1.0}
                return None
            return messages

    def made() -> ChatEpisode:
        episode = make()
        episode.__class__ = Short
        episode.number = next(count)  # type: ignore[attr-defined]
        return episode

    rollouts.make = made


@pytest.mark.parametrize("prompts", [["1"] * 11, ["1"] * 6 + ["2"] * 6, ["1"] * 13])
def test_a_process_with_a_part_of_a_group_is_refused(prompts: list[str]) -> None:
    with pytest.raises(ValueError, match="a process holds a part of a group: give each a multiple of 12 rows"):
        GroupRollouts("CRBC-Sokoban-v0", SIZE, STEPS)(prompts, None)
