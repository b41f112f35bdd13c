"""The arithmetic of one update: who plays which groups, and how many rows, mini-batches and passes that makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from crbc_rl.config import TrainConfig
from crbc_rl.plan.architecture import Architecture
from crbc_rl.plan.memory import microbatch, tokens_per_row


@dataclass(frozen=True, slots=True)
class Batches:
    """One update at most, no episode ending early: a row is an environment step with its prompt and reply."""

    engines: int
    """Generators, each over `generator.tensor_parallel` processes."""
    groups: int
    """Of one generator."""
    rollouts: int
    rows: int
    optimizer_steps: int
    share: int
    """Rows of a mini-batch on one process."""
    microbatch: int
    passes: int
    """Forward and backward passes of one process for one optimizer step."""


def arithmetic(config: TrainConfig, gpus: int, max_steps: int) -> Batches:
    rollouts = config.rollout.num_groups * config.rollout.group_size
    rows = rollouts * max_steps
    share, rows_at_once = ceil(config.optim.minibatch / gpus), microbatch(config, gpus)
    engines = gpus // config.generator.tensor_parallel
    return Batches(
        engines=engines,
        groups=config.rollout.num_groups // engines,
        rollouts=rollouts,
        rows=rows,
        optimizer_steps=config.optim.epochs * ceil(rows / config.optim.minibatch),
        share=share,
        microbatch=rows_at_once,
        passes=ceil(share / rows_at_once),
    )


def contradictions(config: TrainConfig, gpus: int, model: Architecture | None) -> Iterator[str]:
    """What can never work on `gpus` processes, whatever their memory: each key, and what to change."""
    groups, parallel = config.rollout.num_groups, config.generator.tensor_parallel
    if gpus % parallel:
        yield f"generator.tensor_parallel: {gpus} GPUs cannot be put together by {parallel}"
    elif groups % (gpus // parallel):
        yield f"rollout.num_groups: {groups} groups cannot be dealt evenly to {gpus // parallel} generators"
    if parallel > 1 and config.generator.engine == "transformers":
        yield f"generator.tensor_parallel: {parallel} needs generator.engine=vllm"
    if model is None:
        return
    if model.heads % parallel:
        yield f"generator.tensor_parallel: the model's {model.heads} attention heads cannot be split by {parallel}"
    tokens = tokens_per_row(config) or config.rollout.max_new_tokens
    if tokens > model.context:
        yield (
            f"rollout.max_prompt_tokens + rollout.max_new_tokens: {tokens:,} tokens do not fit the model's context "
            f"of {model.context:,}"
        )
