"""Measures what `crbc_lab/plan/workload.py` states of the environments: `python -m benchmarks.lengths`.

An expert and random play go through the first training tasks. A prompt's tokens are counted as the pieces into which
Qwen2.5's tokenizer cuts a text before it merges bytes, its chat template included. That is a lower bound of the tokens,
and needs no download: a common word is one piece and one token, a rare word is one piece and two or three tokens.
"""

from __future__ import annotations

import time
from contextlib import closing
from statistics import fmean, pstdev
from typing import Any

import gymnasium
import numpy as np
import regex

import crbc_envs  # noqa: F401  registers the ids
from benchmarks.credit import table
from crbc_envs.demonstrations import random_reply
from crbc_envs.prompts import IMAGE, Conversation, PromptWindow
from crbc_envs.vector.members import make_member

PIECE = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The published pre-tokenizer of Qwen2 and Qwen2.5."""

CHAT = "system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.\nuser\n\nassistant\n"
CONTROLS = 5
"""Qwen2.5's chat template around a prompt, and its control tokens."""

FRAME = 81
"""Tokens of a frame of 256 by 256 pixels: Qwen2.5-VL reads it as 18 by 18 patches, four to a token."""

WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "CRBC-ALFWorld-v0": ("text", {"rooms": "full", "max_steps": 50}),
    "CRBC-WebShop-v0": ("text", {"max_steps": 15}),
    "CRBC-Sokoban-v0": (
        "image",
        {"observation": "rgb", "height": 6, "width": 6, "num_boxes": 1, "panel": "paper", "pixels": 256},
    ),
}


def pieces(prompt: str) -> int:
    """Tokens at least, of a prompt in its chat template."""
    frames = prompt.count(IMAGE)
    return len(PIECE.findall(prompt.replace(IMAGE, "") + CHAT)) + CONTROLS + frames * (FRAME + 2)


def measure(env_id: str, style: str, kwargs: dict[str, Any], expert: bool, episodes: int) -> list[tuple[str, str]]:
    """Mean prompt, mean turns, and CPU milliseconds of a step and of a reset."""
    rng = np.random.default_rng(0)
    prompts: list[int] = []
    begun: list[float] = []
    stepped: list[float] = []
    with closing(make_member(gymnasium.registry[env_id], {**kwargs, "split": "train", "replies": "tags"})) as env:
        for task in range(episodes):
            begun.append(-time.process_time())
            observation, info = env.reset(seed=task, options={"task": task})
            begun[-1] += time.process_time()
            talk = Conversation(PromptWindow.of(env, style), observation, info)
            player = env.expert(rng) if expert else None
            over = False
            while not over:
                prompts.append(pieces(talk.prompt().text))
                reply = player(observation, info) if player else random_reply(env, info, rng)
                stepped.append(-time.process_time())
                observation, _, terminated, truncated, info = env.step(reply)
                stepped[-1] += time.process_time()
                talk.observe(observation, info)
                over = terminated or truncated
    return [
        (
            "tokens of a prompt at least: mean, deviation, largest",
            f"{fmean(prompts):.0f}, {pstdev(prompts):.0f}, {max(prompts)}",
        ),
        ("turns", f"{len(prompts) / episodes:.1f}"),
        ("a step", f"{1e3 * fmean(stepped):.2f} ms"),
        ("a reset", f"{1e3 * fmean(begun):.1f} ms"),
    ]


def main(episodes: int = 100) -> None:
    for env_id, (style, kwargs) in WORLDS.items():
        for expert in (True, False):
            rows = measure(env_id, style, kwargs, expert, episodes)
            table(f"{env_id}, {'expert' if expert else 'random play'}, {episodes} episodes", rows)


if __name__ == "__main__":
    main()
