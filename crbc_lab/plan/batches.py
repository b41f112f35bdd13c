"""The sizes of one update: groups per generator, rows and optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from crbc_lab.plan.architecture import Architecture
from crbc_lab.plan.memory import microbatch, tokens_per_row
from crbc_rl.config import TrainConfig
from crbc_rl.policies.engines import engine_of


@dataclass(frozen=True, slots=True)
class Batches:
    """Upper bounds of one update, if no episode ends early. A row is an environment step with its prompt and reply."""

    engines: int
    """Number of generators, each over `generator.tensor_parallel` ranks."""
    groups: int
    """Groups of one generator."""
    rollouts: int
    rows: int
    optimizer_steps: int
    rows_per_rank: int
    """Rows of a mini-batch on one rank."""
    microbatch: int


def arithmetic(config: TrainConfig, gpus: int, max_steps: int) -> Batches:
    rollouts = config.rollout.num_groups * config.rollout.group_size
    rows = rollouts * max_steps
    engines = gpus // config.generator.tensor_parallel
    return Batches(
        engines=engines,
        groups=config.rollout.num_groups // engines,
        rollouts=rollouts,
        rows=rows,
        optimizer_steps=config.optim.epochs * ceil(rows / config.optim.minibatch),
        rows_per_rank=ceil(config.optim.minibatch / gpus),
        microbatch=microbatch(config, gpus),
    )


def contradictions(config: TrainConfig, gpus: int, model: Architecture | None) -> Iterator[str]:
    """What can never work on `gpus` ranks with any memory: one message per key, with the change needed."""
    groups, parallel = config.rollout.num_groups, config.generator.tensor_parallel
    if gpus % parallel:
        yield f"generator.tensor_parallel: {gpus} GPUs cannot be put together by {parallel}"
    elif groups % (gpus // parallel):
        yield f"rollout.num_groups: {groups} groups cannot be dealt evenly to {gpus // parallel} generators"
    if parallel > 1 and not engine_of(config).supports_tensor_parallel:
        yield f"generator.tensor_parallel: {parallel} needs generator.engine=vllm"
    if (config.policy.attention or "").startswith("flash") and config.policy.precision != "bfloat16":
        yield "policy.attention: flash attention cannot compute in float32: set policy.precision=bfloat16"
    if model is None:
        return
    if model.heads % parallel:
        yield f"generator.tensor_parallel: the model's {model.heads} attention heads cannot be split by {parallel}"
    elif model.kv_heads % parallel and parallel % model.kv_heads:
        yield f"generator.tensor_parallel: the model's {model.kv_heads} heads of keys cannot be split by {parallel}"
    tokens = tokens_per_row(config) or config.rollout.max_new_tokens
    if tokens > model.context:
        yield (
            f"rollout.max_prompt_tokens + rollout.max_new_tokens: {tokens:,} tokens do not fit the model's context "
            f"of {model.context:,}"
        )
