"""A policy and a config small enough to train in a second, for tests of the learner."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import Qwen2Tokenizer

from crbc_envs.sokoban.panels import SokobanPanel
from crbc_lab import tiny
from crbc_rl.config import TrainConfig, parse_config
from crbc_rl.policies.transformers import TransformersPolicy

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
"""Of a model that trains three times as fast as the tiny agents' shape."""


def fresh_policy(seed: int = 0, shape: Mapping[str, int] = SMALL) -> TransformersPolicy:
    """An untrained small policy whose tokenizer knows Sokoban."""
    return tiny.build(deepcopy(_tokenizer()), torch.Generator().manual_seed(seed), shape=shape)


@cache
def _tokenizer() -> Qwen2Tokenizer:
    panel = SokobanPanel("train")
    boards = [panel[i].content.text(panel[i].content.start) for i in range(50)]
    texts = [f"Sokoban\n{board}\nYour move?" for board in boards]
    texts += ["<think>box left</think><action>up</action> down right stuck"] * 10
    return tiny.train_tokenizer(texts)


def small_config(model: Path, **changes: Any) -> dict[str, Any]:
    """Plain data of a config that trains in seconds."""
    return {
        "name": "small",
        "model": str(model),
        "updates": 4,
        "save_every": 2,
        "threads": 1,
        "env": {"kwargs": {"observation": "text", "max_steps": 3}},
        "rollout": {"num_groups": 2, "group_size": 3, "max_new_tokens": 4},
        "optim": {"lr": 1e-3, "minibatch": 8},
        "eval": {"every": 2, "episodes": 4, "test_episodes": 6},
        **changes,
    }


def small(model: Path, **changes: Any) -> TrainConfig:
    return parse_config(small_config(model, **changes), "test config")


def write_config(path: Path, model: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(small_config(model, **changes)))
    return path


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without what two equal runs do not share: seconds, speeds and memory."""
    measured = ("seconds/", "tokens_per_second/", "memory_peak")
    return [{k: v for k, v in record.items() if not k.startswith(measured)} for record in records]
