"""TRL: groups of episodes in GRPOTrainer, with one row and one advantage per environment step.

    rollouts = GroupRollouts("CRBC-Sokoban-v0", group_size=8, observation="text", max_steps=15)
    config = GRPOConfig(num_generations=rollouts.rows, ...)     # group_size x max_steps
    trainer = StepCreditTrainer(model, config, rollout_func=rollouts, train_dataset=Dataset.from_list(tasks(2000)))

TRL samples and trains as ever. The advantages that it makes of rewards are replaced by credit. For models that call
tools see `crbc_rl.adapters.trl_tools`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crbc_rl import credit
from crbc_rl.adapters import require
from crbc_rl.errors import ConfigError

require("trl", "1.16", "1.17", "trl")

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from crbc_rl.adapters.trl_rollouts import GroupRollouts, tasks

__all__ = ["GroupRollouts", "StepCreditTrainer", "success_reward", "tasks"]


COUNTS = ("groups", "broken_groups", "rollouts")
"""Figures of an update that add up over processes; of the others, which hold as many groups each, the mean counts."""


def success_reward(completions: Any, success: list[float], **_: Any) -> list[float]:
    """TRL's reward: 1 where the row's rollout has succeeded. Its mean is the success rate."""
    return success


class StepCreditTrainer(GRPOTrainer):
    """GRPOTrainer with the advantages of `method`, times `scale`; `credit_options` are as in `credit.advantages`.

    TRL does not normalise them: see `scale` of `credit.advantages_from_rows`. `kwargs` are GRPOTrainer's.

    Raises `ConfigError` for what would have no effect, and where a process would hold a part of a group; `CreditError`
    for an unknown method or option.
    """

    sources: tuple[Any, ...] = ("rollout_func", success_reward)
    """The argument of GRPOTrainer that plays, and its reward function."""

    def __init__(self, model: Any, args: Any, method: Any = "crbc", scale: float = 1.0, **kwargs: Any) -> None:
        options = kwargs.pop("credit_options", {})
        source, reward = self.sources
        credit.check_options(method, options)
        rows = getattr(kwargs.get(source), "rows", args.num_generations)
        held = args.per_device_train_batch_size * args.steps_per_generation
        if args.num_generations != rows:
            raise ConfigError(f"num_generations={args.num_generations}: a prompt has {rows} rows, set it to {rows}")
        if (args.num_generations_eval or rows) != rows and source == "rollout_func":
            raise ConfigError(f"num_generations_eval={args.num_generations_eval}: leave it out, or set it to {rows}")
        if held % rows:
            raise ConfigError(f"per_device_train_batch_size x steps_per_generation = {held}: make it n x {rows} rows")
        if not kwargs.get(source):
            raise ConfigError(f"{source} is missing: it plays the episodes")
        for name in ("rollout_func", "environment_factory", "reward_funcs", "tools"):
            if name != source and kwargs.get(name):
                raise ConfigError(f"{name}: without effect on credit, which is the environment's own; leave it out")
        super().__init__(model, reward, args, **kwargs)
        self.credit_options = {**options, "method": method, "scale": scale}

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        mask = output["completion_mask"] * output["tool_mask"]
        last = (output["completion_mask"].sum(1, keepdim=True) - 1).clamp(min=0)  # a text whose end is no end was cut
        ends = output["completion_ids"].gather(1, last).squeeze(1).tolist()
        output["advantages"] = self.token_credit(inputs, mask, [end in self.eos_token_ids for end in ends])
        shown = gather_object((output["advantages"].sum(1) / mask.sum(1).clamp(min=1)).tolist())
        for _ in shown[: len(self._logs["advantages"])]:  # TRL's own, in its table of completions
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(shown)
        # Fillers would weigh in losses that average rows. A few stay, as many rows for each process and mini-batch.
        live, parts = mask.any(dim=1), self.args.steps_per_generation if self.model.training else 1
        kept = max(1, -(-max(gather_object([int(live.sum())])) // parts)) * parts
        rows = torch.argsort((~live).int(), stable=True)[:kept]
        return {name: value[rows] if value.ndim else value for name, value in output.items()}

    def token_credit(self, inputs: list[dict[str, Any]], mask: torch.Tensor, ended: list[bool]) -> torch.Tensor:
        """The advantage of each token, (B, T), 0 where `mask` is. `ended` tells whether a row's text has an end."""
        return credit.per_token(self.step_credit([row["record"] for row in inputs], self.rollout_func.size), mask)

    def step_credit(self, records: Sequence[dict[str, Any] | None], size: int) -> torch.Tensor:
        """The advantage of each record, float64; TRL's log gets the figures (`credit.advantages_of_update`)."""
        options = {"earns" if name == "reward" else name: value for name, value in self.credit_options.items()}
        credits, figures = credit.advantages_of_update(records, group_size=size, **options)
        parts = gather_object([figures])
        for name in figures:
            total = sum(part.get(name, 0.0) for part in parts)
            value = total if name in COUNTS else total / len(parts)
            self._metrics["train" if self.model.training else "eval"][f"crbc/{name}"].append(value)
        return torch.from_numpy(credits)
