"""Trinity-RFT: a workflow with an experience for each environment step, and an advantage function that reads them.

    algorithm:
      algorithm_type: grpo
      repeat_times: 8
      advantage_fn: crbc_rl.adapters.trinity.StepCredit
      advantage_fn_args: {method: crbc, scale: 0.1}
    buffer:
      explorer_input:
        taskset:
          storage_type: file
          path: tasks    # by `write_tasks`
          default_workflow_type: crbc_rl.adapters.trinity.ChatWorkflow
          workflow_args: {env: {id: CRBC-Sokoban-v0, kwargs: {observation: text}}}

`workflow_args.env` is the section `env` of our own configs. See docs/adapters/trinity.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from crbc_envs import ChatEpisode
from crbc_envs.actions import LENGTH
from crbc_envs.tasks import stream
from crbc_rl import credit
from crbc_rl.adapters import refuse_frames, require
from crbc_rl.adapters.chat_env import chat_episode, env_config
from crbc_rl.credit.api import check_scale, estimator_of
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.panel import choose

require("trinity-rft", "0.6.0", "0.6.1", "trinity")

from trinity.algorithm.advantage_fn import AdvantageFn
from trinity.buffer.operators import ExperienceOperatorV1
from trinity.common.experience import Experience
from trinity.common.workflows.workflow import Workflow

__all__ = ["ChatWorkflow", "StepCredit", "write_tasks"]

ROW, SIZE = "crbc", "crbc_group_size"
"""Keys of `Experience.info`: the step's row, and how many rollouts its group has."""


def text_episode(env: Any, split: str) -> ChatEpisode:
    """An episode of `workflow_args.env`."""
    episode = chat_episode(env_config(env, "workflow_args"), split)
    refuse_frames(episode.env, "Trinity-RFT")
    return episode


def write_tasks(folder: str | Path, env: dict[str, Any], split: str, most: int | None = None) -> int:
    """Write FOLDER/SPLIT.jsonl, at most `most` tasks of a split: those that `crbc eval` plays. Returns how many."""
    panel = text_episode(env, split).env.panel
    tasks = choose(panel, split, len(panel) if most is None else min(most, len(panel))).tasks
    Path(folder).mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"split": split, "task": task}) + "\n" for task in tasks]
    (Path(folder) / f"{split}.jsonl").write_text("".join(lines), "utf-8")
    return len(tasks)


class ChatWorkflow(Workflow):
    """Plays one episode. `task.raw_task` has its split and task, as `write_tasks` writes them."""

    is_async = True
    idle: ClassVar[dict[str, list[ChatEpisode]]] = {}
    """Episodes of this process whose environments wait for a task, by environment and split."""

    async def run_async(self) -> list[Experience]:
        """An experience for each step: the reward is success, and `info` has what credit needs.

        The runs of a task have one seed, another one in each batch. Raises `ConfigError` for a prompt that is too long:
        Trinity would train on a made-up reply.
        """
        env, asked, batch = self.task.workflow_args.get("env"), self.task.raw_task, str(self.task.batch_id)
        waiting = self.idle.setdefault(json.dumps([env, asked["split"]], sort_keys=True), [])
        try:
            play = waiting.pop()
        except IndexError:  # asked at once: runs may be threads
            play = text_episode(env, asked["split"])
        number, ids = int(asked["task"]), {"group": f"{batch}/{self.task.task_id}", "rollout": uuid4().hex}
        seed = stream("evaluation", number) if self.task.is_eval else stream(f"train {batch}", number)
        try:
            said = await self._replies(play, play.begin(number, seed, **ids))
            for reply, row in zip(said, play.rows, strict=True):
                reply.reward = float(play.success)
                reply.info |= {ROW: row, SIZE: self.task.repeat_times}
                reply.metrics |= {"success": reply.reward, "score": play.rows[-1]["score"], "steps": len(said)}
        finally:
            waiting.append(play)
        return said

    async def _replies(self, play: ChatEpisode, messages: Any) -> list[Experience]:
        said: list[Experience] = []
        sampling = {**asdict(self.task.rollout_args), "n": 1}
        most = sampling["max_tokens"] or self.model.config.max_response_tokens
        while messages:
            (reply,) = await self.model.chat_async(messages, **sampling)
            if reply.truncate_status == "prompt_truncated":
                raise ConfigError("a prompt is longer than model.max_prompt_tokens: raise it")
            reply.eid.step = len(said)
            said.append(reply)
            cut = most is not None and len(reply.tokens) - reply.prompt_length >= most
            messages = play.reply(reply.response_text, LENGTH if cut else None)
        return said


class StepCredit(AdvantageFn, ExperienceOperatorV1):
    """Step credit of what an explorer's step has played, with the options of `credit.advantages_of_update`. Raises
    `CreditError` for an unknown one."""

    def __init__(self, method: str = "crbc", scale: float = 1.0, **options: Any) -> None:
        estimator_of(method).check({name: value for name, value in options.items() if name != "earns"})
        check_scale(scale)
        self.options = {**options, "method": method, "scale": scale}

    def __call__(self, exps: list[Experience], **kwargs: Any) -> tuple[list[Experience], dict[str, float]]:
        """The experiences with an advantage for each of their sampled tokens, and figures for the log.

        A group of which a run has failed gets none, and is counted. Raises `ConfigError` for experiences of another
        workflow.
        """
        if not exps:
            return [], {}
        if any(ROW not in exp.info for exp in exps):
            raise ConfigError("StepCredit needs experiences of crbc_rl.adapters.trinity.ChatWorkflow")
        sizes = {exp.info[SIZE] for exp in exps}
        if len(sizes) > 1:
            raise ConfigError(f"groups of {min(sizes)} and of {max(sizes)} rollouts: give all tasks one repeat_times")
        values, figures = credit.advantages_of_update(
            [exp.info[ROW] for exp in exps], group_size=sizes.pop(), **self.options
        )
        for exp, value in zip(exps, values.tolist(), strict=True):
            exp.advantages = exp.action_mask.float() * value
            exp.returns = exp.advantages.clone()
        return exps, {f"crbc/{name}": value for name, value in figures.items()}

    async def process(self, exps: list[Experience]) -> tuple[list[Experience], dict[str, float]]:
        return self(exps)

    @classmethod
    def compute_in_trainer(cls) -> bool:
        return False

    @classmethod
    def default_args(cls) -> dict[str, Any]:
        return {"method": "crbc"}
