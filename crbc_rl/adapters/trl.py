"""TRL: groups of episodes in GRPOTrainer, with one row and one advantage per environment step.

    rollouts = GroupRollouts("CRBC-Sokoban-v0", group_size=8, max_steps=15, observation="text")
    config = GRPOConfig(num_generations=rollouts.rows, ...)     # group_size x max_steps
    trainer = StepCreditTrainer(model, args=config, rollout_func=rollouts, reward_funcs=success_reward,
                                train_dataset=Dataset.from_list(tasks(2000)), method="crbc", scale=0.1)

TRL samples, scores and trains as ever. Rows behind the end of an episode are fillers that its mask leaves out.
"""

from __future__ import annotations

from typing import Any

import torch
from trl import GRPOTrainer

from crbc_envs import ChatEpisode
from crbc_rl import credit


def tasks(number: int) -> list[dict[str, str]]:
    """The rows of a data set: the first tasks of the panel."""
    return [{"prompt": str(task)} for task in range(number)]


def success_reward(completions: Any, success: list[float], **_: Any) -> list[float]:
    """TRL's reward: 1 where the row's rollout has succeeded. Its own advantages from it are replaced."""
    return success


class GroupRollouts:
    """A `rollout_func` that plays each prompt, a task's number, with `group_size` copies of the environment.

    `kwargs` are those of `ChatEpisode`. A process must hold whole groups: `per_device_train_batch_size` times
    `steps_per_generation` is a multiple of `rows`. Raises `ValueError` otherwise.
    """

    def __init__(self, env_id: str, group_size: int, max_steps: int, **kwargs: Any) -> None:
        self.size, self.steps, self.rows = group_size, max_steps, group_size * max_steps
        self.make = lambda: ChatEpisode(env_id, max_steps=max_steps, **kwargs)
        self.episodes: list[ChatEpisode] = []

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        if len(prompts) % self.rows or any(p != prompts[i - i % self.rows] for i, p in enumerate(prompts)):
            raise ValueError(f"a process holds a part of a group: give each a multiple of {self.rows} rows")
        members = range(len(prompts) // self.steps)
        self.episodes += [self.make() for _ in members[len(self.episodes) :]]
        seed, self.turns = trainer.state.global_step, [[] for _ in members]
        waiting = {m: self.begin(m, prompts[m * self.steps], trainer.args.seed + seed) for m in members}
        while waiting:
            asked, _, _ = trainer._tokenize_prompts(list(waiting.values()))
            replies, _ = trainer._generate_single_turn(asked, None, {}, 1)
            texts = trainer.processing_class.batch_decode(replies, skip_special_tokens=True)
            for m, *turn, text in zip(list(waiting), asked, replies, texts, strict=True):
                self.turns[m].append(turn)
                waiting[m] = self.episodes[m].reply(text)
            waiting = {m: messages for m, messages in waiting.items() if messages}
        return self.table(members)

    def begin(self, member: int, task: str, seed: int) -> Any:
        group, rollout = divmod(member, self.size)
        return self.episodes[member].begin(int(task), seed, group=group, rollout=rollout)

    def table(self, members: range) -> dict[str, list[Any]]:
        table: dict[str, list[Any]] = {name: [] for name in ("prompt_ids", "completion_ids", "env_mask")}
        table |= {"record": [], "success": [], "logprobs": None}  # type: ignore[dict-item]
        for m in members:
            rows, turns = self.episodes[m].rows, self.turns[m]
            for step in range(self.steps):
                prompt, reply = turns[min(step, len(turns) - 1)]
                table["prompt_ids"].append(prompt)
                table["completion_ids"].append(reply)
                table["env_mask"].append([int(step < len(turns))] * len(reply))
                table["record"].append(rows[step] if step < len(turns) else None)
                table["success"].append(float(self.episodes[m].success))
        return table


class StepCreditTrainer(GRPOTrainer):
    """GRPOTrainer with the advantages of `method`, times `scale`; `credit_options` are as in `credit.advantages`.

    TRL does not normalise them: see `scale` of `credit.advantages_from_rows`.
    """

    def __init__(self, *args: Any, method: str = "crbc", scale: float = 1.0, credit_options: Any = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.credit_options = {"method": method, "scale": scale, **(credit_options or {})}

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        live = [row for row, values in enumerate(inputs) if values["record"]]
        names = inputs[live[0]]["record"]
        columns = {name: [inputs[row]["record"][name] for row in live] for name in names}
        credits = torch.zeros(len(inputs), dtype=torch.float64)
        credits[live] = torch.from_numpy(credit.advantages_from_rows(**columns, **self.credit_options))
        output["advantages"] = credit.per_token(credits, output["completion_mask"])
        return output
