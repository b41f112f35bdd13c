"""The shapes of tests/data/replies.toml, and a model behind a server that knows the right action and replies in one of
them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np
from paths import ROOT

from crbc_envs import ChatEpisode
from crbc_envs.actions import requested_action
from crbc_envs.vector.members import make_member
from crbc_rl.config import RunConfig
from crbc_rl.rollout.prompts import prompt_options


@dataclass(frozen=True)
class Shape:
    """A reply without its action."""

    name: str
    source: str
    content: str | None = None
    thought: str | None = None
    thought_field: str = ""
    parts: bool = False
    refusal: str | None = None
    ended: str = "stop"
    cause: str = ""

    @property
    def in_text(self) -> bool:
        """Whether it can come as a text alone, without the fields of a server."""
        return self.thought is None and self.refusal is None and self.ended in ("stop", "length")

    @property
    def finish_reason(self) -> str:
        """What a caller without these fields says of it."""
        return self.ended if self.refusal is None else "refusal"

    def text(self, action: str, other: str) -> str:
        return (self.content or "").replace("{a}", action).replace("{other}", other)

    def completion(self, action: str, other: str) -> bytes:
        """A server's answer."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": self.refusal}
        if self.content is not None:
            message["content"] = self.text(action, other)
        if self.parts:
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": self.thought}]}
            message["content"] = [thinking, {"type": "text", "text": message["content"]}]
        elif self.thought is not None:
            message[self.thought_field] = self.thought.replace("{a}", action).replace("{other}", other)
        return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": self.ended}]}).encode()


SHAPES = [Shape(**shape) for shape in tomllib.loads((ROOT / "tests/data/replies.toml").read_text())["shape"]]


def expert_moves(env_id: str, split: str, tasks: range, **kwargs: Any) -> dict[str, str]:
    """What the environment's expert does at each observation of these tasks."""
    env, moves = make_member(env_id, {"split": split, "replies": "tags", **kwargs}), {}
    for task in tasks:
        observation, info = env.reset(seed=0, options={"task": task})
        expert = env.expert(np.random.default_rng(0))
        over = False
        while not over:
            reply = expert(observation, info)
            moves[observation] = requested_action(reply, "tags")
            observation, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
        assert info["success"]
    return moves


def expert_replies(config: RunConfig, split: str, tasks: range) -> dict[str, str]:
    """What the expert does at each prompt of these tasks, as the config asks."""
    env, moves = make_member(config.env.id, {**config.env.kwargs, "split": split, "replies": "tags"}), dict[str, str]()
    chat = ChatEpisode(env, **prompt_options(config))
    for task in tasks:
        messages: Any = chat.begin(task)
        expert = env.expert(np.random.default_rng(0))
        while messages:
            reply = expert(chat.observation, chat.info)
            moves[chat.prompt.text] = requested_action(reply, "tags")
            messages = chat.reply(reply)
        assert chat.success
    return moves


def known_move(moves: dict[str, str], prompt: str) -> tuple[str, str]:
    """The right move at the observation or the prompt of which `prompt` has the whole text, and another one."""
    action = moves[max((shown for shown in moves if shown in prompt), key=len)]
    return action, next(move for move in ("up", "left") if move != action)
