"""How much memory of a GPU training takes, from shapes alone: an upper bound, every row at its token limits.

The learner generates and trains by turns on the same GPUs. While it trains, vLLM sleeps; while it generates, there are
no activations and no gradients. So the peak is the larger of the two phases.

The counts of bytes per token and per logit are what torch's own MemTracker finds when the policy's backward pass
runs on fake tensors of the real shapes; a test repeats that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from crbc_rl.config import TrainConfig
from crbc_rl.plan.architecture import Architecture

GIB = 2**30

RESERVE = 4 * GIB
"""For CUDA's context, NCCL's buffers, the allocator's fragments, and what vLLM keeps when it sleeps. Our guess."""

LOGIT = 20
"""Bytes per response token and entry of the vocabulary at the start of the backward pass: five float32 tensors."""

Parts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU while training and while generating, by what takes them, and how many replies vLLM can write
    at a time at full length (None without vLLM)."""

    training: Parts
    generating: Parts
    concurrent: int | None

    @property
    def peak(self) -> int:
        return max(sum(self.training.values()), sum(self.generating.values()))

    def fits(self, gib: float) -> bool:
        return self.peak <= gib * GIB and self.concurrent != 0


def microbatch(config: TrainConfig, gpus: int) -> int:
    """Rows of one pass on one process."""
    share = ceil(config.optim.minibatch / gpus)
    return min(config.optim.microbatch or share, share)


def tokens_per_row(config: TrainConfig, model: Architecture) -> tuple[int, int]:
    """(tokens, response tokens) of the longest row: without a limit on prompts they fill the context."""
    reply = config.rollout.max_new_tokens
    prompt = config.rollout.max_prompt_tokens
    return (model.context if prompt is None else prompt + reply), reply


def estimate(config: TrainConfig, model: Architecture, gpus: int, gib: float) -> Memory:
    """The memory that one of `gpus` GPUs with `gib` GiB needs to train `model` as `config` says."""
    held = _held(config, model, gpus)
    training = {**held, **_moving(config, model, gpus), **_activations(config, model, gpus), "reserve": RESERVE}
    if config.generator.engine == "transformers":
        return Memory(training, {**held, **_own_generation(config, model, gpus), "reserve": RESERVE}, None)
    share = int(config.generator.memory * gib * GIB)
    per_gpu = ceil(model.kv_bytes / min(config.generator.tensor_parallel, model.kv_heads))
    free = share - 2 * model.parameters // config.generator.tensor_parallel
    concurrent = max(0, free // (per_gpu * tokens_per_row(config, model)[0]))
    return Memory(training, {**held, "vLLM": share, "reserve": RESERVE}, concurrent)


def _held(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What stays on a GPU all the time: each process holds its share."""
    adapter = model.layers * config.policy.lora_rank * model.linear
    trained = adapter or model.parameters
    models = 2 if config.credit.method == "gae" else 1  # the critic is a second model of the same size
    parts = {
        "weights, float32": 4 * (model.parameters + adapter) * models // gpus,
        "Adam's moments": 8 * trained * models // gpus,
    }
    if config.loss.kl and not config.policy.offload_reference and not adapter:
        parts["reference, float32"] = 4 * model.parameters // gpus
    return parts


def _moving(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """Gradients, and the units that are gathered whole: two layers, and all that is outside layers."""
    adapter = model.layers * config.policy.lora_rank * model.linear
    gradients = {"gradients, float32": 4 * (adapter or model.parameters) // gpus}
    if gpus == 1 and config.policy.precision == "float32":
        return gradients
    outside = model.parameters - model.layers * model.layer
    whole = 2 * model.layer + outside
    return {**gradients, "gathered weights and gradients": _bytes(config) * (whole if adapter else 2 * whole)}


def _activations(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What one pass keeps for its backward, and the larger of its two ends: logits, or one layer computed again."""
    rows, (length, reply) = microbatch(config, gpus), tokens_per_row(config, model)
    size, tokens = _bytes(config), rows * length
    layer = size * tokens * (4 * model.intermediate + 14 * model.hidden)
    inputs = size * tokens * model.hidden
    kept = model.layers * (inputs if config.policy.gradient_checkpointing else layer) + 4 * inputs
    mask = rows * length**2 * (1 + size)
    work = layer + 3 * size * tokens * model.intermediate
    logits = LOGIT * rows * reply * model.vocabulary
    return {"activations kept": kept + mask, "logits" if logits > work else "one layer": max(logits, work)}


def _own_generation(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What transformers' generation takes: all rollouts of a process at once."""
    rows = ceil(config.rollout.num_groups / gpus) * config.rollout.group_size
    cache = rows * tokens_per_row(config, model)[0] * model.kv_bytes * _bytes(config) // 2
    return {"key-value cache": cache, "logits": 8 * rows * model.vocabulary}


def _bytes(config: TrainConfig) -> int:
    return 2 if config.policy.precision == "bfloat16" else 4
