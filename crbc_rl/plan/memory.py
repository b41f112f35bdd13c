"""How much memory of a GPU a run takes, from shapes alone: an upper bound, every row at its token limits.

A run loads, then generates and trains by turns on the same GPUs. While it trains, vLLM sleeps; while it generates,
there are no activations and no gradients. So the peak is the largest of three phases.

The bytes per token and per logit are what torch's own MemTracker finds when the policy's passes run on fake
tensors of the real shapes; a test repeats that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from crbc_rl.config import CRITIC, TrainConfig
from crbc_rl.plan.architecture import Architecture
from crbc_rl.policies.transformers import LOGITS_PER_CHUNK

GIB = 2**30

RESERVE = 4 * GIB
"""For CUDA's context, NCCL's buffers, the allocator's fragments, and what vLLM keeps when it sleeps. Our guess."""

LOGIT = 20
"""Bytes that the gradient of log-probabilities takes for each logit of the rows it is made for at a time: five
float32 tensors. Beside them there are all logits of the pass and their gradients."""

Parts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU by phase and by what takes them; how many replies one engine of vLLM can write at a time at
    full length (None without vLLM); and the main memory of all processes while they load."""

    phases: dict[str, Parts]
    concurrent: int | None
    main: int

    @property
    def peak(self) -> int:
        return max(sum(parts.values()) for parts in self.phases.values())

    def fits(self, gib: float) -> bool:
        return self.peak <= gib * GIB and self.concurrent != 0


def microbatch(config: TrainConfig, gpus: int) -> int:
    """Rows of one pass that trains on one process."""
    share = ceil(config.optim.minibatch / gpus)
    return min(config.optim.microbatch or share, share)


def tokens_per_row(config: TrainConfig) -> int | None:
    """Tokens of the longest row, None where the config sets no limit to prompts."""
    prompt = config.rollout.max_prompt_tokens
    return None if prompt is None else prompt + config.rollout.max_new_tokens


def estimate(config: TrainConfig, model: Architecture, gpus: int, gib: float) -> Memory:
    """The memory that one of `gpus` GPUs with `gib` GiB needs to train `model` as `config` says, which has to limit
    its prompts."""
    held, reserve = _held(config, model, gpus), {"reserve": RESERVE}
    loading = {"whole weights, float32": 4 * model.parameters, **reserve}
    if config.loss.kl and not config.policy.lora_rank:  # the reference is loaded when the policy is in shards
        loading["the policy, sharded"] = 4 * model.parameters // gpus
    training = {
        **held,
        "gradients, float32": 4 * _trained(config, model) // gpus,
        **_moving(config, model, gpus),
        **max(_activations(config, model, gpus), _scoring(config, model, gpus), key=lambda parts: sum(parts.values())),
        **reserve,
    }
    if config.generator.engine == "vllm":
        share = int(config.generator.memory * gib * GIB)
        handed = 4 * model.vocabulary * model.hidden  # embeddings, the largest of the tensors that vLLM is given whole
        engine, concurrent = {"vLLM": share, "a weight on its way": handed}, _replies(config, model, share)
    else:
        engine, concurrent = _own_generation(config, model, gpus), None
    phases = {"loading": loading, "training": training, "generating": {**held, **engine, **reserve}}
    return Memory(phases, concurrent, main=4 * model.parameters * gpus)


def _sharded(config: TrainConfig, gpus: int) -> bool:
    return gpus > 1 or config.policy.precision == "bfloat16"


def _bytes(config: TrainConfig) -> int:
    return 2 if config.policy.precision == "bfloat16" else 4


def _length(config: TrainConfig) -> int:
    length = tokens_per_row(config)
    assert length is not None, "an estimate needs rollout.max_prompt_tokens"
    return length


def _held(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What stays on a GPU all the time: its shards, and a whole copy where transformers samples from one."""
    share, trained = model.parameters // gpus, _trained(config, model)
    parts = {"weights, float32": 4 * share, "Adam's moments": 8 * trained // gpus}
    if config.policy.lora_rank:
        parts["LoRA's factors"] = 4 * trained // gpus
    if config.credit.method == CRITIC:
        parts["critic, with its moments"] = 12 * share
    if config.loss.kl and not (config.policy.offload_reference or config.policy.lora_rank):
        parts["reference, float32"] = 4 * share
    if config.generator.engine == "transformers" and _sharded(config, gpus):
        parts["copy that samples"] = _bytes(config) * model.parameters
    return parts


def _trained(config: TrainConfig, model: Architecture) -> int:
    """How many parameters are trained: all, or LoRA's factors beside the seven matrices of every block."""
    if not config.policy.lora_rank:
        return model.parameters
    narrow = model.hidden * model.kv_heads // model.heads
    ends = 4 * model.hidden + 2 * (model.hidden + narrow) + 3 * (model.hidden + model.intermediate)
    return config.policy.lora_rank * model.layers * ends


def _moving(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What is whole while activations are there: the weights of two blocks and of what is outside blocks, the
    gradients of the latter, and those of one block on their way to the other processes in float32."""
    if not _sharded(config, gpus):
        return {}
    size = _bytes(config)
    return {"gathered and reduced": size * 2 * (model.block + model.outside) + (size + 4) * model.block}


def _activations(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What one pass keeps for its backward, and the larger of its two ends: logits, or one layer computed again."""
    rows, length = microbatch(config, gpus), _length(config)
    size, tokens = _bytes(config), rows * length
    layer = size * tokens * (4 * model.intermediate + 14 * model.hidden)
    inputs = size * tokens * model.hidden
    kept = model.layers * (inputs if config.policy.gradient_checkpointing else layer) + 4 * inputs
    mask = rows * length**2 * (1 + size)
    work = layer + 3 * size * tokens * model.intermediate
    row = config.rollout.max_new_tokens * model.vocabulary
    logits = 2 * size * rows * row + LOGIT * min(rows, max(1, LOGITS_PER_CHUNK // row)) * row
    return {"activations kept": kept + mask, "logits" if logits > work else "one layer": max(logits, work)}


def _scoring(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What a pass takes that only reads: its logits, or one layer; nothing is kept."""
    rows = config.optim.score_microbatch or microbatch(config, gpus)
    row = config.rollout.max_new_tokens * model.vocabulary
    logits = _bytes(config) * rows * row + LOGIT * min(rows, max(1, LOGITS_PER_CHUNK // row)) * row
    layer = 3 * _bytes(config) * rows * _length(config) * model.intermediate
    return {"a pass that scores": max(logits, layer)}


def _replies(config: TrainConfig, model: Architecture, share: int) -> int:
    """Replies at full length that fit beside the weights in vLLM's share of the GPUs it is spread over."""
    parallel, size = config.generator.tensor_parallel, _bytes(config)
    each = ceil(model.kv_bytes / min(parallel, model.kv_heads)) * _length(config) * size // 2
    return max(0, share - size * model.parameters // parallel) // each


def _own_generation(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What transformers' generation takes: all live rollouts of a process at once."""
    rows, length = ceil(config.rollout.num_groups / gpus) * config.rollout.group_size, _length(config)
    cache = rows * length * model.kv_bytes * _bytes(config) // 2
    prefill = 3 * _bytes(config) * rows * length * model.intermediate
    return {"key-value cache": cache, "prefill": prefill, "logits": LOGIT * rows * model.vocabulary}
