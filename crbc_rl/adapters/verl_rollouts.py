"""verl's side of the rollouts: the tasks of a split as a data set, and an agent loop. See `crbc_rl.adapters.verl`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, get_args
from uuid import uuid4

import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torch.utils.data import Dataset
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from crbc_envs import ChatEpisode
from crbc_envs.actions import LENGTH
from crbc_envs.tasks import stream
from crbc_rl.adapters.chat_env import chat_episode, env_config
from crbc_rl.config import RunConfig
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.panel import Name, choose

Turn = tuple[list[int], list[Image.Image], Any, list[int]]  # the prompt's tokens and frames, verl's answer, its tokens


def section(config: DictConfig, name: str) -> Any:
    return OmegaConf.to_container(config.get(name) or OmegaConf.create(), resolve=True)


def played(data: DictConfig) -> RunConfig:
    """`data.env`, the section `env` of our own configs."""
    return env_config(section(data, "env"), "data")


class Tasks(Dataset[dict[str, Any]]):
    """The tasks of a split; `data.train_files` and `data.val_files` name splits, not files.

    `data.val_max_samples` tasks of `data.val_files` are those that `crbc eval` plays; `data.panel` names other ones
    (`crbc_rl.rollout.panel`). Of training, they are the split's first ones.
    """

    def __init__(self, data_files: Any, tokenizer: Any, config: DictConfig, **kwargs: Any) -> None:
        named = [data_files] if isinstance(data_files, str) else list(data_files)
        if len(named) != 1:
            raise ConfigError(f"{named}: data.train_files and data.val_files name one split each, such as train")
        (self.split,) = named
        panel = chat_episode(played(config), self.split).env.panel
        self.kind, self.source, self.seed = panel.kind, config.env.id, config.get("seed") or 0
        size = min(most, len(panel)) if (most := kwargs.get("max_samples", -1)) > 0 else len(panel)
        self.tasks, self.repeats = tuple(range(size)), None  # type: tuple[int, ...], tuple[int, ...] | None
        if (name := config.get("panel")) not in (None, *get_args(Name)):
            raise ConfigError(f"data.panel={name}: a panel is one of {', '.join(get_args(Name))}")
        if data_files == config.val_files:
            chosen = choose(panel, self.split, size, name)
            self.tasks, self.repeats = chosen.tasks, chosen.repeats

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, i: int) -> dict[str, Any]:
        task = int(self.tasks[i])
        repeat = -1 if self.repeats is None else self.repeats[i]
        ours = {"task": task, "split": self.split, "kind": self.kind(task), "seed": self.seed, "repeat": repeat}
        shown = [{"role": "user", "content": f"{self.split}/{task}"}]
        verls = {"raw_prompt": shown, "reward_model": {"ground_truth": ""}, "dummy_tensor": torch.zeros(1)}
        return {**ours, **verls, "index": i, "data_source": self.source}


@register("crbc")
class ChatLoop(AgentLoopBase):
    """Plays one episode. Each environment step is an output of its own, with the whole prompt of that step."""

    idle: dict[str, list[ChatEpisode]] = {}  # noqa: RUF012
    """Episodes of this process whose environments wait for a task, by split."""

    async def run(self, sampling_params: dict[str, Any], **given: Any) -> list[AgentLoopOutput]:
        """The members of a group have its `uid`, task and seed, and each its own `session_id`.

        A task of training has another seed in each update; one of validation always the same.
        """
        waiting = self.idle.setdefault(given["split"], [])
        play = waiting.pop() if waiting else chat_episode(played(self.data_config), given["split"])
        task, repeat = int(given["task"]), int(given["repeat"])
        drawn = ("train", task, int(given.get("global_steps", 0)), int(given["seed"]))
        seed = stream(*(("evaluation", task, repeat) if repeat >= 0 else drawn))
        messages = play.begin(task, seed, group=str(given["uid"]), rollout=int(given["session_id"]))
        turns = [turn async for turn in self.turns(play, messages, sampling_params)]
        waiting.append(play)
        told = {"acc": float(play.success), "score": play.rows[-1]["score"], "steps": len(turns), "kind": given["kind"]}
        return [self.output(turn, row, told) for turn, row in zip(turns, play.rows, strict=True)]

    async def turns(self, play: ChatEpisode, messages: Any, sampling: dict[str, Any]) -> AsyncIterator[Turn]:
        """Raises `ConfigError` for a prompt that is too long: verl would cut its head off."""
        most, limit, request = self.rollout_config.prompt_length, self.rollout_config.response_length, uuid4().hex
        while messages:
            images = [Image.fromarray(frame) for frame in play.prompt.images]
            ids = self.continuous_token_builder.build_initial_tokens(_for_processor(messages), images=images or None)
            if len(ids) > most:
                raise ConfigError(f"a prompt has {len(ids)} tokens: set data.max_prompt_length, {most}, to more")
            said = await self.server_manager.generate(
                request, prompt_ids=ids, sampling_params={**sampling, "max_tokens": limit}, image_data=images or None
            )
            new = list(said.token_ids)[:limit]
            if not new:
                raise ConfigError(f"the engine gave a reply without a token ({said.stop_reason}): a session ends")
            text, last = (self.tokenizer.decode(part, skip_special_tokens=True) for part in (new, new[-1:]))
            special = last != self.tokenizer.decode(new[-1:], skip_special_tokens=False)  # Gemma's eos ends no turn
            yield ids, images, said, new
            messages = play.reply(text, None if special else LENGTH)

    def output(self, turn: Turn, row: dict[str, Any], told: dict[str, Any]) -> AgentLoopOutput:
        """A step as verl keeps it. `row` is what credit needs, and `told` of the rollout goes to validation."""
        prompt, images, said, new = turn
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=new,
            response_mask=[1] * len(new),
            response_logprobs=list(said.log_probs)[: len(new)] if said.log_probs else None,
            routed_experts=said.routed_experts,
            multi_modal_data={"images": images} if images else None,
            reward_score=told["acc"],
            num_turns=row["length"],
            metrics=AgentLoopMetrics(),
            extra_fields={**said.extra_fields, "crbc": row, "reward_extra_info": told},
        )


def _for_processor(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's messages as chat templates have them: a frame is a place alone."""

    def plain(content: Any) -> Any:
        return content if isinstance(content, str) else [_PLACE if p["type"] == "image_url" else p for p in content]

    return [{**message, "content": plain(message["content"])} for message in messages]


_PLACE = {"type": "image"}
