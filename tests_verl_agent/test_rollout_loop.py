"""examples/verl_agent.py in verl-agent's own rollout loop, gathering, `adjust_batch`, a new order and its advantages.
A stub draws replies; everything else is verl-agent's."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest
import recorded_groups
import torch
from agent_system.multi_turn_rollout import TrajectoryCollector, adjust_batch
from omegaconf import OmegaConf
from paths import ROOT
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer.ppo.ray_trainer import AdvantageEstimator, compute_advantage, compute_response_mask

from anchors import Rollout, RolloutGroup, Step
from crbc_rl import credit

spec = importlib.util.spec_from_file_location("crbc_env", ROOT / "examples/verl_agent.py")
assert spec is not None and spec.loader is not None
crbc_env = sys.modules["crbc_env"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(crbc_env)

TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "warmstarts/sokoban-tiny")
TOKENIZER.pad_token_id = TOKENIZER.pad_token_id or 0
GROUPS, SIZE, RANKS, WIDTH = 3, 4, 4, 24


def config(**crbc: Any) -> Any:
    batches = {"log_prob_micro_batch_size_per_gpu": 4}
    actor = {"ppo_micro_batch_size_per_gpu": 4, "ppo_mini_batch_size": 16, "use_kl_loss": True}
    lengths = {"max_prompt_length": 1200, "truncation": "error", "return_raw_chat": True}
    ours = {"prompt": "compact", "kwargs": {"observation": "text"}, **crbc}
    env = {"env_name": "CRBC-Sokoban-v0", "seed": 0, "max_steps": 8, "history_length": 2, "rollout": {"n": SIZE}}
    gigpo = {"mode": "mean_std_norm", "step_advantage_w": 1.0, "enable_similarity": False}
    return OmegaConf.create(
        {
            "env": {**env, "crbc": ours},
            "data": {"train_batch_size": GROUPS, "val_batch_size": 2, **lengths},
            "trainer": {"n_gpus_per_node": RANKS, "nnodes": 1},
            "actor_rollout_ref": {"rollout": batches, "ref": batches, "actor": actor},
            "algorithm": {
                "use_kl_in_reward": False,
                "filter_groups": {"enable": False},
                "gamma": 0.95,
                "gigpo": gigpo,
            },
        }
    )


class Actor:
    """verl's workers of the policy, which draw moves and malformed replies."""

    world_size = RANKS

    def __init__(self) -> None:
        self.rng = np.random.default_rng(6)

    def generate_sequences(self, batch: Any) -> Any:
        moves = self.rng.choice(["up", "down", "left", "right"], size=len(batch))
        said = ["hm" if self.rng.random() < 0.1 else f"<think></think><action>{move}</action>" for move in moves]
        made = TOKENIZER(said, return_tensors="pt", padding="max_length", max_length=WIDTH, padding_side="right")
        ids = torch.cat([batch.batch["input_ids"], made["input_ids"]], 1)
        mask = torch.cat([batch.batch["attention_mask"], made["attention_mask"]], 1)
        rows = {"prompts": batch.batch["input_ids"], "responses": made["input_ids"], "input_ids": ids}
        return DataProto.from_single_dict({**rows, "attention_mask": mask, "position_ids": mask.cumsum(1)})


def played(ours: Any) -> tuple[Any, Any]:
    envs, _ = crbc_env.make_envs(ours)
    count = GROUPS * SIZE
    prompts = np.empty(count, dtype=object)
    prompts[:] = [[{"role": "user", "content": ""}]] * count
    asked = {"input_ids": torch.zeros(count, 4, dtype=torch.long), "raw_prompt": prompts}
    batch = DataProto.from_single_dict({**asked, "data_source": np.array(["text"] * count, dtype=object)})
    collector = TrajectoryCollector(config=ours, tokenizer=TOKENIZER, processor=None)
    return envs, collector.gather_rollout_data(*collector.vanilla_multi_turn_loop(batch, Actor(), envs))


def credited(ours: Any, batch: Any) -> Any:
    np.random.seed(0)  # noqa: NPY002 (`adjust_batch` draws what it copies from there)
    batch = adjust_batch(ours, batch)
    batch.batch["response_mask"] = compute_response_mask(batch)
    batch.reorder(torch.randperm(len(batch), generator=torch.Generator().manual_seed(1)))
    batch.batch["token_level_rewards"] = torch.zeros_like(batch.batch["responses"], dtype=torch.float32)
    batch.batch["step_rewards"] = torch.zeros(len(batch))
    return compute_advantage(batch, adv_estimator=AdvantageEstimator.GiGPO)


@pytest.mark.parametrize(
    ("method", "options"),
    [*recorded_groups.KINDS, ("crbc", {"beta": 0.9, "scale": 0.1}), ("gigpo", {})],
    ids=str,
)
def test_each_row_and_its_copies_get_the_credit_of_the_step(method: str, options: dict[str, Any]) -> None:
    named = {"earns" if name == "reward" else name: value for name, value in options.items()}
    ours = config(method=method, **named)
    envs, batch = played(ours)
    live, done = len(batch), credited(ours, batch)
    assert len(done) > live  # rows were copied
    wanted: dict[tuple[str, int, int], float] = {}
    for start in range(0, len(envs.members), SIZE):
        members = [member.rows for member in envs.members[start : start + SIZE]]
        ends = ("success", "truncated", "final_anchor", "score")
        rollouts = [
            Rollout([Step(r["anchor"], r["action"], r["reward"]) for r in rows], **{end: rows[-1][end] for end in ends})
            for rows in members
        ]
        for rows, values in zip(members, credit.advantages(RolloutGroup(rollouts), method, **options), strict=True):
            wanted |= {(r["group"], r["rollout"], r["step"]): v for r, v in zip(rows, values, strict=True)}
    assert live == len(wanted)
    for i, step in enumerate(done.non_tensor_batch["anchor_obs"]):
        mask, found = done.batch["response_mask"][i].bool(), done.batch["advantages"][i]
        right = wanted[step.row["group"], step.row["rollout"], step.row["step"]]
        assert mask.any() and not found[~mask].any()
        assert float((found[mask].double() - right).abs().max()) < 1e-6
    assert any(wanted.values())


def test_the_rows_are_what_was_asked_and_said() -> None:
    _, batch = played(config())
    valid = batch.non_tensor_batch["is_action_valid"]
    said = TOKENIZER.batch_decode(batch.batch["responses"], skip_special_tokens=True)
    for step, ok, text in zip(batch.non_tensor_batch["anchor_obs"], valid, said, strict=True):
        assert step.row["valid"] == ok == ("<action>" in text)
        assert not ok or f"<action>{step.row['action']}</action>" in text


def test_a_group_begins_alike_and_validation_has_its_own_tasks() -> None:
    training, validation = crbc_env.make_envs(config())
    texts = training.reset()[0]["text"]
    assert all(len(set(texts[start : start + SIZE])) == 1 for start in range(0, len(texts), SIZE))
    assert len(set(texts)) == GROUPS and len(validation.reset()[0]["text"]) == 2
    assert validation.members[0].env.panel is not training.members[0].env.panel
    again, _ = crbc_env.make_envs(config())
    assert again.reset()[0]["text"] == texts


def test_keys_of_verl_agent_count_where_they_are_gigpo_s_and_the_prompt_s() -> None:
    ours = config(method="gigpo")
    ours.algorithm.update({"gamma": 0.9, "gigpo": {**ours.algorithm.gigpo, "mode": "mean_norm"}})
    ours.env.history_length = 0
    expected = {"method": "gigpo", "gamma": 0.9, "mode": "mean_norm", "w_step": 1.0}
    assert crbc_env.credit_options(ours) == expected
    ours.env.crbc.gamma = 0.8
    assert crbc_env.credit_options(ours) == {**expected, "gamma": 0.8}
    ours.env.crbc.method = "crbc"
    assert crbc_env.credit_options(ours) == {"method": "crbc", "gamma": 0.8}
    training, _ = crbc_env.make_envs(ours)
    assert {member._ask[1] for member in training.members} == {0}
    ours.env.crbc.method, ours.algorithm.gigpo.enable_similarity = "gigpo", True
    with pytest.raises(ValueError, match="enable_similarity"):
        crbc_env.make_envs(ours)


def test_a_misspelt_method_is_one_sentence() -> None:
    _, batch = played(config(method="crbcc"))
    with pytest.raises(ValueError, match="crbcc") as caught:
        credited(config(method="crbcc"), batch)
    assert "\n" not in str(caught.value)
