"""How long prompts, replies and episodes are: those of an environment's expert, in the tokens of a config's model."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from huggingface_hub import snapshot_download, try_to_load_from_cache

from crbc_envs.demonstrations import expert_steps, prompted
from crbc_envs.prompts import PromptWindow
from crbc_rl.config import TrainConfig
from crbc_rl.rollout.prompts import prompt_options
from crbc_rl.runs.model import initial, is_local
from crbc_rl.trees import trees

TOKENIZER = "tokenizer_config.json"
SHOWN = 40
"""Steps of the expert that are measured."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Means over the expert's first steps, and the longest reply. Tokens count the chat template and the end token."""

    prompt: float
    shared: float
    """Tokens of a prompt that another of these begins with; the members of a group have more in common."""
    spread: float
    """The standard deviation of a prompt's tokens."""
    reply: float
    turns: float
    """Steps of an episode."""
    longest: int

    @property
    def suggested(self) -> int:
        """A limit of replies in which all of these fit, and a quarter more."""
        return -(-5 * self.longest // 4)


def expert_lengths(config: TrainConfig, online: bool = False) -> Lengths | None:
    """The lengths in `config`'s environment; None without an expert, or without the model's tokenizer on this machine,
    where a model of the hub comes `online`.

    A frame counts as the text that stands for it. Raises `ConfigError` where the tokenizer cannot be used.
    """
    folder = _tokenizer_folder(config, online)
    if folder is None:
        return None
    with closing(config.member("train")) as env:
        if not hasattr(env, "expert"):
            return None
        window = PromptWindow.of(env, **prompt_options(config))
        steps = list(islice(prompted(window, expert_steps(env, np.random.default_rng(0))), SHOWN))
    if not steps:
        return None
    from transformers import AutoTokenizer

    from crbc_rl.policies.chat_tokens import ChatTokens
    from crbc_rl.policies.files import SAFE, as_config_error

    with as_config_error(f"{folder}: its tokenizer cannot be used"):
        tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE)
    encoder = ChatTokens(tokenizer)
    replies = [reply for _, _, reply in steps]
    prompts = [encoder.encode(prompt.text, prompt.system) for prompt, _, _ in steps]
    return Lengths(
        prompt=fmean(map(len, prompts)),
        shared=(sum(map(len, prompts)) - sum(map(len, trees(prompts, reach=inf)))) / len(prompts),
        spread=pstdev(map(len, prompts)),
        reply=fmean(longest_reply(tokenizer, [reply]) for reply in replies),
        turns=len(steps) / sum(info["step"] == 0 for _, info, _ in steps),
        longest=longest_reply(tokenizer, replies),
    )


def _tokenizer_folder(config: TrainConfig, online: bool) -> Path | None:
    """The folder with the tokenizer of a config's model. Of one of the hub all but the weights is fetched `online`."""
    if is_local(config) or Path(config.model).is_dir():
        folder = initial(config)
        return folder if (folder / TOKENIZER).is_file() else None
    if not online:
        cached = try_to_load_from_cache(config.model, TOKENIZER, revision=config.revision)
        return Path(cached).parent if isinstance(cached, str) else None
    from crbc_rl.policies.files import FROM_HUB, as_config_error

    few = [pattern for pattern in FROM_HUB if "safetensors" not in pattern]
    with as_config_error(f"model: {config.model} cannot be read from the hub"):
        return Path(snapshot_download(config.model, revision=config.revision, allow_patterns=few))


def longest_reply(tokenizer: Any, replies: Iterable[str]) -> int:
    """Tokens of the longest of `replies`, with the end token; 0 where there are none."""
    return max((1 + len(tokenizer.encode(reply, add_special_tokens=False)) for reply in set(replies)), default=0)
