"""A vision-language policy of the Qwen2.5-VL architecture, small enough to train in seconds."""

from __future__ import annotations

import torch

from crbc_lab import tiny
from crbc_rl.policies.vision import VisionPolicy


def fresh_vision_policy(seed: int = 0) -> VisionPolicy:
    """Random weights, drawn from `seed`."""
    texts = ["You see <image> and move up down left right <think>box</think><action>up</action>"] * 50
    return tiny.build_vision(tiny.train_tokenizer(texts), torch.Generator().manual_seed(seed))
