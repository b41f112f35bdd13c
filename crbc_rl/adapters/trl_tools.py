"""TRL's `environment_factory`: an environment as the tool of a model that calls tools, with credit per step.

    config = GRPOConfig(num_generations=8, ...)     # the size of a group
    trainer = ToolCreditTrainer(model, config, train_dataset=Dataset.from_list(tool_tasks(2000)),
                                environment_factory=lambda: ToolEnvironment("CRBC-ALFWorld-v0"))

An episode is one growing conversation. The tokens of the model's turns get the advantage of the step they led to.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from crbc_envs import ChatEpisode
from crbc_envs.prompts import View
from crbc_envs.tasks import stream
from crbc_rl.adapters import require
from crbc_rl.errors import ConfigError

require("trl", "1.16", "1.17", "trl")

import torch

from crbc_rl.adapters.trl import StepCreditTrainer

RULES = "Reach the goal below. Call the tool `act` once in each of your turns, until the episode has ended.\n\n"


def tool_tasks(number: int, split: str = "train", text: str = RULES) -> list[dict[str, Any]]:
    """The rows of a data set: the first tasks of a split. The first observation is appended to `text`."""
    return [{"prompt": [{"role": "user", "content": text}], "task": t, "split": split} for t in range(number)]


def tool_text(view: View) -> str:
    """What the model reads: the task at first, the observation, and the admissible actions."""
    if view.frame:
        raise ConfigError("a tool shows no frames: give the environment observation='text'")
    task = "" if view.step else f"Your task is: {view.task}\n"
    return f"{task}{view.observation}\nAdmissible actions: {', '.join(view.admissible)}"


class ToolEnvironment:
    """One environment with the tool `act`. `kwargs` are those of `ChatEpisode`, without the split. With a `judge`, the
    replies in its `turns` are the actions. Raises `ConfigError` for `system`, which would not reach the model."""

    def __init__(self, env_id: str, prompt: Any = tool_text, **kwargs: Any) -> None:
        if kwargs.get("system") is not None:
            raise ConfigError(
                "system: a tool answers with the user's text alone: give this one to tool_tasks(text=...)"
            )
        self._make = cache(lambda split: ChatEpisode(env_id, prompt, split=split, **kwargs))

    def reset(self, task: int, split: str = "train", seed: int = 0, rollout: int = 0, **_: Any) -> str:
        """`rollout` is the place in its group, which `ToolCreditTrainer` sets: its number for the noise."""
        self._episode, self._turn, self._turns = self._make(split), -1, list[int]()
        return self._episode.begin(task, seed, rollout=rollout)[-1]["content"]

    def act(self, action: str) -> str:
        """Take one action in the environment.

        Args:
            action: One of the admissible actions.
        """
        if self._episode.over:
            return "The episode has ended."
        if self._turn in self._turns:
            return "Not executed: one action in a turn."
        messages = self._episode.reply(str(action))
        self._turns.append(self._turn)
        return messages[-1]["content"] if messages else f"The episode has ended, success: {self._episode.success}."

    def get_reward(self) -> float:
        return float(self._episode.success)

    def _records(self, turns: int, cut: bool = False, **ids: int) -> list[dict[str, Any]]:
        """The steps of a conversation of `turns` turns. A last turn without an action is a malformed action.

        An episode that is cut, as where the tokens ran out, is truncated; it is a failure if the model stopped acting.
        """
        stopped = not self._episode.over and self._turns[-1:] < [turns - 1] and not (cut and self._turns)
        if stopped:
            self._episode.reply("")
            self._turns.append(turns - 1)
        info = self._episode.info
        end = {"length": len(self._turns), "final_anchor": info["anchor"], "score": float(info["score"])}
        rows = self._episode.rows
        if not self._episode.over:
            rows = [{**row, "scores": value} for row, value in zip(rows, self._episode.scores(), strict=False)] or rows
        # A row has its own outcome where the episode has ended.
        return [{**end, "success": False, "truncated": cut or not stopped, **row, **ids} for row in rows]


class ToolCreditTrainer(StepCreditTrainer):
    """`StepCreditTrainer` for a factory of `ToolEnvironment`. `num_generations` is the size of a group."""

    sources = ("environment_factory", None)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        training = self.model.training
        size = self.num_generations if training else self.num_generations_eval
        if len(inputs) % size:
            raise ConfigError(f"a process holds {len(inputs)} rows: give it n x {size} by per_device_eval_batch_size")
        path = (self.args.seed, self.state.global_step if training else 0, self.accelerator.process_index)
        seeds = (stream("group", *path, i // size, int(x.get("task", 0))) for i, x in enumerate(inputs))
        return super()._generate_and_score_completions(
            [{"seed": seed, **x, "rollout": i % size} for i, (x, seed) in enumerate(zip(inputs, seeds, strict=True))]
        )

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        for environment in self.environments:
            environment._turn += 1
        return super()._generate_single_turn(*args, **kwargs)

    def token_credit(self, inputs: list[dict[str, Any]], mask: torch.Tensor, ended: list[bool]) -> torch.Tensor:
        """A turn whose call failed belongs to the next step; after the end of an episode there is no advantage."""
        size = self.num_generations if self.model.training else self.num_generations_eval
        starts = mask.cpu().diff(dim=1, prepend=mask.new_zeros(len(mask), 1).cpu()) == 1
        records, places = list[dict[str, Any]](), []
        for row, (environment, turn) in enumerate(zip(self.environments, starts.cumsum(1) - 1, strict=True)):
            turns = min(int(turn[-1]) + 1, self.max_tool_calling_iterations)  # TRL executes no call of a later turn
            own = environment._records(turns, not ended[row], group=row // size, rollout=row % size)
            step = torch.searchsorted(torch.tensor(environment._turns), turn)
            places.append(torch.where(step < len(own), step + len(records), -1))
            records += own
        credits = torch.cat([self.step_credit(records, size), torch.zeros(1)])
        return credits[torch.stack(places)].float().to(mask.device) * mask
