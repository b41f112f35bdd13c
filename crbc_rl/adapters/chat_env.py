"""The section `env` of our own configs inside another trainer's, and the episodes that it plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crbc_envs import ChatEpisode
from crbc_rl.config import RunConfig, extensions
from crbc_rl.config.read import parse
from crbc_rl.config.revisions import other_data
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.prompts import prompt_options


def env_config(env: Any, where: str) -> RunConfig:
    """`env` as a trainer has it in its section `where`. Replies are read by "thought" unless it says otherwise.

    Raises `ConfigError` for what our own commands refuse.
    """
    if not isinstance(env, dict) or "id" not in env:
        raise ConfigError(f"{where}.env.id names no environment: CRBC-Sokoban-v0, say")
    extensions.allow()  # the trainer imports what its config names, too
    config = parse(RunConfig, {"env": {"replies": "thought", **env}}, where, Path())
    if (wrong := other_data(config)) is not None:
        raise ConfigError(f"{where}.{wrong}")
    return config


def chat_episode(config: RunConfig, split: str) -> ChatEpisode:
    """An episode on a split, whose environment has the config's arguments."""
    return ChatEpisode(config.member(split, replies=config.replies), **prompt_options(config))
