"""verl-agent: our environments and step credit in one file of its tree. docs/adapters/verl_agent.md has what to change.

A step travels through its batches as the anchor that it hands out: `adjust_batch` copies rows, `_balance_batch` orders
them anew and `filter_group_data` drops whole groups, and the object stays the same. What the environment says of the
step is known when its episode has ended.
"""

from __future__ import annotations

from typing import Any

import gigpo.core_gigpo
import numpy as np
import torch
from agent_system.environments.base import EnvironmentManagerBase
from omegaconf import OmegaConf

from crbc_envs import ChatEpisode
from crbc_rl import credit
from crbc_rl.adapters import refuse_frames


def settings(config: Any) -> dict[str, Any]:
    """`env.crbc` of verl-agent's config: `prompt`, `kwargs` of the environment, and options of credit."""
    ours: dict[str, Any] = OmegaConf.to_container(config.env.get("crbc", OmegaConf.create()))
    return ours


def credit_options(config: Any) -> dict[str, Any]:
    """Options of credit: those of `env.crbc`, and for GiGPO before them verl-agent's own."""
    ours = {name: value for name, value in settings(config).items() if name not in ("prompt", "kwargs")}
    if ours.get("method") != "gigpo":
        return ours
    theirs = config.algorithm
    if theirs.gigpo.enable_similarity:
        raise ValueError("algorithm.gigpo.enable_similarity=True: the anchors of crbc are compared as they are")
    return {"gamma": theirs.gamma, "mode": theirs.gigpo.mode, "w_step": theirs.gigpo.step_advantage_w, **ours}


class Step:
    """`row` is the step as `ChatEpisode.rows` has it, None until its episode has ended."""

    row: dict[str, Any] | None = None


class Episodes(EnvironmentManagerBase):
    """`groups` groups of `size` members; a group's members lie together, have one task and begin alike."""

    def __init__(self, config: Any, groups: int, size: int, split: str, seed: int) -> None:
        super().__init__(None, None, config)
        ours = settings(config)
        kwargs = {"replies": "tags", "history": config.env.history_length, **ours.get("kwargs", {})}
        kwargs |= {"max_steps": config.env.max_steps, "split": split}
        prompt = ours.get("prompt", "text")
        self.members = [ChatEpisode(config.env.env_name, prompt, **kwargs) for _ in range(groups * size)]
        refuse_frames(self.members[0].env, "verl-agent")
        self.size, self.split, self.rng = size, split, np.random.default_rng(seed)
        self.panel = len(self.members[0].env.panel)

    def reset(self, kwargs: Any = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        groups = len(self.members) // self.size
        tasks = self.rng.integers(self.panel, size=groups) if self.split == "train" else np.arange(groups) % self.panel
        seeds = self.rng.integers(2**31, size=groups)
        asked = []
        for number, member in enumerate(self.members):
            group, rollout = divmod(number, self.size)
            name = f"{seeds[group]}/{group}"
            asked.append(member.begin(int(tasks[group]), int(seeds[group]), group=name, rollout=rollout))
        self.steps = [[Step()] for _ in self.members]
        return self.observations(asked), [{"won": False} for _ in self.members]

    def step(self, text_actions: list[str]) -> tuple[dict[str, Any], Any, Any, list[dict[str, Any]]]:
        asked, infos, rewards = [], [], np.zeros(len(self.members))
        for number, (member, steps, text) in enumerate(zip(self.members, self.steps, text_actions, strict=True)):
            messages = None
            if not member.over:  # verl-agent goes on until the last member has ended
                messages = member.reply(text)
                if messages is None:
                    rewards[number] = 10.0 * member.success
                    for step, row in zip(steps, member.rows, strict=True):
                        step.row = row
                else:
                    steps.append(Step())
            asked.append(messages)
            infos.append({"won": member.success, "is_action_valid": np.array(member.record["valid"])})
        return self.observations(asked), rewards, np.array([member.over for member in self.members]), infos

    def observations(self, asked: list[Any]) -> dict[str, Any]:
        texts = ["" if messages is None else messages[-1]["content"] for messages in asked]
        anchors = np.array([None, *(steps[-1] for steps in self.steps)], dtype=object)[1:]
        return {"text": texts, "image": None, "anchor": anchors}

    def close(self) -> None:
        for member in self.members:
            member.close()


def step_credit(anchor_obs: Any, response_mask: Any, size: int, options: dict[str, Any]) -> tuple[Any, Any]:
    """The advantage of every row at its tokens. Rows that were copied have their original's."""
    distinct = list({id(step): step for step in anchor_obs}.values())
    values, _ = credit.advantages_of_update([step.row for step in distinct], group_size=size, **options)
    of = {id(step): value for step, value in zip(distinct, values, strict=True)}
    advantages = credit.per_token(np.array([of[id(step)] for step in anchor_obs]), response_mask)
    return advantages, advantages


def make_envs(config: Any) -> tuple[Episodes, Episodes]:
    """The environments of training and validation. GiGPO's estimator, which alone gets anchors, is replaced by ours."""
    core: Any = gigpo.core_gigpo
    size, options = config.env.rollout.n, credit_options(config)
    core.compute_gigpo_outcome_advantage = lambda anchor_obs, response_mask, **_: step_credit(
        anchor_obs, response_mask, size, options
    )
    core.compute_step_discounted_returns = lambda batch, gamma: torch.zeros(len(batch))
    training = Episodes(config, config.data.train_batch_size, size, "train", config.env.seed)
    return training, Episodes(config, config.data.val_batch_size, 1, "validation", config.env.seed + 1000)
