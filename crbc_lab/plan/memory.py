"""Upper bounds of a run's GPU memory and of its disk, computed from shapes with every row at its token limits.

A run loads, and then alternates between generation and training on the same GPUs. During training vLLM sleeps; during
generation there are no activations and no gradients. So the peak is the largest of three phases.

The bytes per token and per logit are what torch's own MemTracker finds when the policy's passes run on fake
tensors of the real shapes; a test repeats that.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from crbc_lab.plan.architecture import Architecture
from crbc_lab.plan.hardware import RESERVE
from crbc_rl.config import CRITIC, KEEP, TrainConfig
from crbc_rl.policies.engines import engine_of
from crbc_rl.policies.transformers import LOGITS_PER_CHUNK
from crbc_rl.rollout.evaluate import BATCH
from crbc_rl.runs.transcripts import MOST_BYTES

GIB = 2**30

LOGIT = 20
"""Bytes per logit of the log-probabilities and their gradient, for the tokens computed at a time: five float32 tensors.
The logits themselves, their gradient and one of the head come in addition."""

FLOAT = 4
"""Bytes of a saved weight, and of each of Adam's two moments of it."""

Parts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one rank.

    `phases`: bytes on one GPU by phase and purpose. `concurrent`: how many replies of full length one vLLM engine can
    generate at a time, None without vLLM. `main`: bytes of main memory of all ranks while they load.
    """

    phases: dict[str, Parts]
    concurrent: int | None
    main: int

    @property
    def peak(self) -> int:
        return max(sum(parts.values()) for parts in self.phases.values())

    def fits(self, gib: float) -> bool:
        return self.peak <= gib * GIB and self.concurrent != 0


def microbatch(config: TrainConfig, gpus: int) -> int:
    """Rows of one training pass on one rank."""
    share = ceil(config.optim.minibatch / gpus)
    return min(config.optim.microbatch or share, share)


def tokens_per_row(config: TrainConfig) -> int | None:
    """Tokens of the longest row; None where the config sets no limit on prompts."""
    prompt = config.rollout.max_prompt_tokens
    return None if prompt is None else prompt + config.rollout.max_new_tokens


def estimate(config: TrainConfig, model: Architecture, gpus: int, gib: float, reserved: int = RESERVE) -> Memory:
    """The memory that each of `gpus` GPUs with `gib` GiB needs to train `model` with `config`.

    The config must limit its prompts (`rollout.max_prompt_tokens`).
    """
    held, reserve = _held(config, model, gpus), {"reserve": reserved}
    loading = {"whole weights, float32": 4 * model.parameters, **reserve}
    if _sharded(config, gpus):
        loading["a weight beside its shard"] = 4 * model.vocabulary * model.hidden // gpus
    critic, shard = config.credit.method == CRITIC, 4 * model.parameters // gpus
    if _refers(config) or critic:  # the reference is loaded after the policy is sharded, and the critic after both
        kept = critic and _refers(config) and not config.policy.offload_reference
        loading["what is sharded before it"] = shard * (1 + kept)
    if critic:
        loading["the policy's moments, of a resumed run"] = 8 * trained(config, model) // gpus
    peak = max(_activations(config, model, gpus), _scoring(config, model, gpus), key=lambda parts: sum(parts.values()))
    training = {
        **held,
        "gradients, float32": 4 * max(trained(config, model), critic * model.parameters) // gpus,
        **_moving(config, model, gpus),
        **peak,
        **reserve,
    }
    if not engine_of(config).is_transformers:
        share = int(config.generator.memory * gib * GIB)
        handed = 4 * model.vocabulary * model.hidden  # embeddings, the largest full tensor given to vLLM
        engine, concurrent = {"vLLM": share, "a weight on its way": handed}, _replies(config, model, share)
    else:
        engine, concurrent = _own_generation(config, model, gpus), None
    phases = {"loading": loading, "training": training, "generating": {**held, **engine, **reserve}}
    return Memory(phases, concurrent, main=4 * model.parameters * gpus)


def _sharded(config: TrainConfig, gpus: int) -> bool:
    return gpus > 1 or config.policy.precision == "bfloat16"


def _refers(config: TrainConfig) -> bool:
    """Whether a reference is loaded; LoRA's is the model without factors."""
    return bool(config.loss.kl and not config.policy.lora_rank)


def _bytes(config: TrainConfig) -> int:
    return 2 if config.policy.precision == "bfloat16" else 4


def _length(config: TrainConfig) -> int:
    length = tokens_per_row(config)
    assert length is not None, "an estimate needs rollout.max_prompt_tokens"
    return length


def _held(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What stays on a GPU all the time: its shards, and a full copy if transformers samples from one."""
    share, learned = model.parameters // gpus, trained(config, model)
    parts = {"weights, float32": 4 * share, "Adam's moments": 8 * learned // gpus}
    if config.policy.lora_rank:
        parts["LoRA's factors"] = 4 * learned // gpus
    if config.credit.method == CRITIC:
        parts["critic, with its moments"] = 12 * share
    offloaded = config.policy.offload_reference and _sharded(config, gpus)  # FSDP does it
    if _refers(config) and not offloaded:
        parts["reference, float32"] = 4 * share
    if engine_of(config).is_transformers and _sharded(config, gpus):
        parts["copy that samples"] = _bytes(config) * model.parameters
    return parts


def trained(config: TrainConfig, model: Architecture) -> int:
    """The number of trained parameters: all, or the LoRA factors of the seven matrices of every block."""
    if not config.policy.lora_rank:
        return model.parameters
    wide, narrow = model.heads * model.head, model.kv_heads * model.head
    ends = 2 * (model.hidden + wide) + 2 * (model.hidden + narrow) + 3 * (model.hidden + model.intermediate)
    return config.policy.lora_rank * model.layers * ends


def _moving(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """Unsharded tensors at the peak of activations: the weights of two blocks and of the parameters outside blocks, the
    gradients of the latter, and the gradients of one block, which are reduced over the ranks in float32. FSDP2 keeps
    what is outside the blocks of a model whole after a pass without gradients, as the reference's are."""
    if not _sharded(config, gpus):
        return {}
    size = _bytes(config)
    parts = {"gathered and reduced": size * 2 * (model.block + model.outside) + (size + 4) * model.block}
    if _refers(config):
        parts["the reference's embedding and head, whole"] = size * model.outside
    return parts


def _activations(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """What one pass keeps for its backward pass, and the larger of two peaks: logits, or one recomputed layer."""
    rows, size = microbatch(config, gpus), _bytes(config)
    tokens = _tokens(config, rows)
    layer = size * tokens * kept_in_layer(model)
    inputs = size * tokens * model.hidden
    kept = model.layers * (inputs if config.policy.gradient_checkpointing else layer) + 4 * inputs
    work = layer + 3 * size * tokens * model.intermediate
    logits = (2 * size + LOGIT) * _logits(config, model, rows) + size * model.vocabulary * model.hidden
    return {"activations kept": kept, "logits" if logits > work else "one layer": max(logits, work)}


def kept_in_layer(model: Architecture) -> int:
    """Numbers that a layer keeps of a token: up to a tenth more than torch counts of seven shapes."""
    queries, keys = model.heads * model.head, model.kv_heads * model.head
    attention = 3.5 * keys + 3.5 * queries * (keys < queries) + 2.5 * (queries + keys) * model.norms_heads
    return ceil(4 * model.intermediate + 10 * model.hidden + attention)


def _tokens(config: TrainConfig, rows: int) -> int:
    """Tokens of a pass over at most `rows` rows, of which one may be longer than the limit."""
    length, limit = _length(config), config.optim.microbatch_tokens
    return rows * length if limit is None else min(rows * length, max(length, limit))


def _logits(config: TrainConfig, model: Architecture, rows: int) -> int:
    """Logits that a pass over `rows` rows computes at a time."""
    replies = min(rows * config.rollout.max_new_tokens, _tokens(config, rows))
    return model.vocabulary * min(replies, max(1, LOGITS_PER_CHUNK // model.vocabulary))


def _scoring(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """The memory of a pass without gradients: its logits, or one layer; nothing is kept."""
    rows = config.optim.score_microbatch or microbatch(config, gpus)
    layer = 3 * _bytes(config) * _tokens(config, rows) * model.intermediate
    return {"a pass that scores": max(layer, (_bytes(config) + LOGIT) * _logits(config, model, rows))}


def _replies(config: TrainConfig, model: Architecture, share: int) -> int:
    """Replies of full length that fit, with the weights, into vLLM's memory on its GPUs."""
    parallel, size = config.generator.tensor_parallel, _bytes(config)
    each = ceil(model.kv_bytes / min(parallel, model.kv_heads)) * _length(config) * size // 2
    return max(0, share - size * model.parameters // parallel) // each


def _own_generation(config: TrainConfig, model: Architecture, gpus: int) -> Parts:
    """The memory of transformers' generation, with all live rollouts of a rank at once, or those of an evaluation."""
    groups, episodes = config.rollout.num_groups, max(config.eval.episodes, config.eval.test_episodes)
    rows = max(ceil(groups / gpus) * config.rollout.group_size, min(BATCH, ceil(episodes / gpus)))
    length = _length(config)
    cache = rows * length * model.kv_bytes * _bytes(config) // 2
    prefixes = max(cache, int(config.generator.prefix_cache * 2**30))  # a call's own prompts are all kept
    prefill, logits = 3 * _bytes(config) * rows * length * model.intermediate, LOGIT * rows * model.vocabulary
    return {"key-value cache": cache, "prefixes": prefixes, "prefill": prefill, "logits": logits}


# ---- disk -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes that a run's folder takes: of one `model`, of one `checkpoint`, and of all that lies there at its `peak`,
    while a checkpoint is written and those before it and `bests` best policies are still there. Recorded rollouts and
    metrics come in addition."""

    model: int
    checkpoint: int
    bests: int
    peak: int


def disk(config: TrainConfig, model: Architecture) -> Disk:
    """The disk that a run of `config` takes. A model that is a folder is copied into the run; one of the hub is not."""
    weights, learned = FLOAT * model.parameters, FLOAT * trained(config, model)
    checkpoint = weights + (3 if config.policy.lora_rank else 2) * learned  # two moments, and LoRA's factors
    checkpoint += 3 * weights if config.credit.method == CRITIC else 0
    copied = (weights if Path(config.model).is_dir() else 0) + (MOST_BYTES if config.transcripts else 0)
    bests = 2 + (config.save_every > config.eval.every)  # one stays until the next checkpoint
    return Disk(weights, checkpoint, bests, peak=(KEEP + 1) * checkpoint + bests * weights + copied)


def free(folder: Path) -> int:
    """Bytes that are free where `folder` is, or would be made."""
    place = folder.absolute()
    return shutil.disk_usage(next(one for one in (place, *place.parents) if one.exists())).free
