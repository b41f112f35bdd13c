"""Every part of the plan's memory and disk in bytes, worked by hand for a model of 12,000 weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT

from crbc_lab.plan.architecture import Architecture
from crbc_lab.plan.hardware import RESERVE
from crbc_lab.plan.memory import GIB, Disk, Memory, disk, estimate
from crbc_rl.config import TrainConfig, load_config

TOY = Architecture(
    source="by hand",
    parameters=12_000,
    block=2_500,
    outside=2_000,
    layers=4,
    hidden=8,
    intermediate=24,
    heads=4,
    kv_heads=2,
    vocabulary=100,
    context=4_096,
    vision=False,
)
"""Keys and values of a token: 2 bytes x (a key and a value) x 4 layers x 2 heads x 2 numbers = 64 bytes."""

SIZES = ["rollout.num_groups=6", "rollout.group_size=3", "rollout.max_prompt_tokens=10", "rollout.max_new_tokens=6"]
SIZES += ["optim.minibatch=24", "optim.microbatch=2", "optim.score_microbatch=2", "generator.memory=0.5"]
SIZES += ["eval.episodes=8", "eval.test_episodes=20"]


def config_of(*overrides: str) -> TrainConfig:
    """Rows of 16 tokens, two at a time, in bfloat16 with gradient checkpointing, beside a reference."""
    return load_config(ROOT / "configs/paper/alfworld_qwen2.5_1.5b.yaml", [*SIZES, *overrides])


def parts_of(phase: str, *overrides: str, gpus: int = 4) -> dict[str, int]:
    """The bytes of a phase by purpose on GPUs of 64 KiB, without the reserve, which every phase has."""
    parts = dict(estimate(config_of(*overrides), TOY, gpus, 2**16 / GIB).phases[phase])
    assert parts.pop("reserve") == RESERVE
    return parts


HELD = {"weights, float32": 12_000, "Adam's moments": 24_000, "reference, float32": 12_000}
"""A quarter of 12,000 weights at 4, 8 and 4 bytes."""
MOVING = {"gathered and reduced": 33_000}
"""Two blocks and what is outside, with the gradients of the latter: 2 x 2 x 4,500; a block's gradients: 6 x 2,500."""
WHOLE = {"the reference's embedding and head, whole": 4_000}
"""What is outside the blocks, at 2 bytes."""
KEPT = 4_096
"""8 x the input of a layer, 2 x 32 x 8."""
LAYER = 2 * 32 * (4 * 24 + 10 * 8 + 3.5 * (4 + 8))  # its keys are 4 numbers, its queries 8
PASS = {"activations kept": KEPT, "logits": 30_400}
"""Logits of 2 x 6 x 100: twice at 2 bytes, and at 20 bytes; the head's gradient of 100 x 8 at 2. A layer and what it
recomputes is less: 13,312 + 4,608."""
GRADIENTS = {"gradients, float32": 12_000}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], HELD | GRADIENTS | MOVING | WHOLE | PASS),
        (["credit.method=gae"], HELD | GRADIENTS | MOVING | WHOLE | PASS | {"critic, with its moments": 36_000}),
        (
            ["policy.lora_rank=2"],  # 2 x 4 layers x (16 + 12 + 12 + 16 + 3 x 32) = 1,216 factors, and no reference
            {"weights, float32": 12_000, "Adam's moments": 2_432, "LoRA's factors": 1_216}
            | {"gradients, float32": 1_216, **MOVING, **PASS},
        ),
        (
            ["policy.lora_rank=2", "credit.method=gae"],  # the critic is trained whole
            {"weights, float32": 12_000, "Adam's moments": 2_432, "LoRA's factors": 1_216}
            | {"critic, with its moments": 36_000, **GRADIENTS, **MOVING, **PASS},
        ),
        (
            ["rollout.max_prompt_tokens=15", "rollout.max_new_tokens=1"],
            HELD | GRADIENTS | MOVING | WHOLE | {"activations kept": KEPT, "one layer": LAYER + 4_608},
        ),
        (
            ["policy.gradient_checkpointing=false"],
            HELD | GRADIENTS | MOVING | WHOLE | PASS | {"activations kept": 4 * LAYER + 2_048},
        ),
        (  # logits of 3 x 6 x 100 at 2 and 20 bytes, more than all of a pass with gradients
            ["optim.score_microbatch=3"],
            HELD | GRADIENTS | MOVING | WHOLE | {"a pass that scores": 39_600},
        ),
        (  # a layer of 20 x 16 tokens: 3 x 2 x 24 bytes each
            ["optim.score_microbatch=20", "rollout.max_prompt_tokens=15", "rollout.max_new_tokens=1"],
            HELD | GRADIENTS | MOVING | WHOLE | {"a pass that scores": 46_080},
        ),
        (["loss.kl=0"], {name: size for name, size in HELD.items() if "ref" not in name} | GRADIENTS | MOVING | PASS),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_training_by_hand(overrides: list[str], expected: dict[str, int]) -> None:
    assert parts_of("training", *overrides) == expected


def test_one_gpu_in_float32_holds_everything_and_gathers_nothing() -> None:
    work = {"activations kept": 2 * 4_096, "one layer": 4 * 32 * (218 + 72)}  # logits take 36,800
    alone = {name: 4 * size for name, size in (HELD | GRADIENTS).items()}
    assert parts_of("training", "policy.precision=float32", gpus=1) == alone | work


def test_tokens_bound_a_pass_as_rows_do() -> None:
    """A row has 16 tokens at most, and a pass two rows."""
    scores = "optim.score_microbatch=1"
    whole, one = (parts_of("training", scores, f"optim.microbatch={rows}") for rows in (2, 1))
    for limit, rows in ((16, 1), (5, 1), (24, 1.5), (47, 2)):
        bound = parts_of("training", scores, f"optim.microbatch_tokens={limit}")
        assert bound["activations kept"] == rows * one["activations kept"]
        assert bound["logits"] == whole["logits"], "of short prompts there may be two"
    assert parts_of("training", scores, "optim.microbatch_tokens=10_000") == whole


def test_loading_by_hand() -> None:
    whole = {"whole weights, float32": 48_000}
    beside = {"a weight beside its shard": 800}  # a quarter of the embedding, 4 x 100 x 8
    before = "what is sharded before it"
    assert parts_of("loading") == whole | beside | {before: 12_000}
    for overrides in ("loss.kl=0", "policy.lora_rank=2"):
        assert parts_of("loading", overrides) == whole | beside
    assert parts_of("loading", "policy.precision=float32", gpus=1) == whole | {before: 48_000}
    moments = {"the policy's moments, of a resumed run": 24_000}
    assert parts_of("loading", "credit.method=gae") == whole | beside | moments | {before: 24_000}
    for overrides in (("loss.kl=0",), ("policy.offload_reference=true",)):
        assert parts_of("loading", "credit.method=gae", *overrides) == whole | beside | moments | {before: 12_000}
    assert estimate(config_of(), TOY, 4, 1).main == 192_000


@pytest.mark.parametrize(("parallel", "concurrent"), [(1, 8), (2, 40), (4, 52)])
def test_vllm_by_hand(parallel: int, concurrent: int) -> None:
    """Half of 64 KiB, less the weights' part in bfloat16, in replies of 16 tokens. Two heads of keys and values are
    split by two at most: (32,768 - 24,000) / 1,024, (32,768 - 12,000) / 512 and (32,768 - 6,000) / 512."""
    override = f"generator.tensor_parallel={parallel}"
    assert parts_of("generating", override) == HELD | {"vLLM": 32_768, "a weight on its way": 3_200}
    assert estimate(config_of(override), TOY, 4, 2**16 / GIB).concurrent == concurrent


def test_generation_by_transformers_by_hand() -> None:
    """Of 6 groups a rank has 2 at most, 6 rollouts of 16 tokens; the copy that samples is whole."""
    own = {
        "key-value cache": 6 * 16 * 64,
        "prefixes": GIB,
        "prefill": 3 * 2 * 6 * 16 * 24,
        "logits": 20 * 6 * 100,
    }
    assert parts_of("generating", "generator.engine=transformers") == HELD | own | {"copy that samples": 24_000}
    alone = parts_of("generating", "generator.engine=transformers", "policy.precision=float32", gpus=1)
    assert "copy that samples" not in alone and alone["key-value cache"] == 20 * 16 * 64 * 2  # of the evaluation


@pytest.mark.parametrize(("episodes", "rows"), [(20, 6), (25, 7), (512, 128), (4_096, 128)])
def test_an_evaluation_plays_as_many_at_a_time_as_it_does(episodes: int, rows: int) -> None:
    """Its tasks are divided among four ranks, and each plays 128 at most at a time. All of a call's prompts are kept,
    also beyond `generator.prefix_cache`."""
    own = ("generator.engine=transformers", "generator.prefix_cache=0")
    for name in ("eval.episodes", "eval.test_episodes"):
        parts = parts_of("generating", *own, f"{name}={episodes}")
        assert parts["key-value cache"] == parts["prefixes"] == rows * 16 * 64


def test_the_peak_is_the_largest_phase() -> None:
    memory = Memory({"loading": {"a": GIB, "b": GIB}, "training": {"a": GIB // 2, "b": 5 * GIB // 2}}, 1, 0)
    assert memory.peak == 3 * GIB and memory.fits(3) and not memory.fits(2.99)


@pytest.mark.parametrize(
    ("overrides", "checkpoint"),
    [([], 144_000), (["credit.method=gae"], 288_000), (["policy.lora_rank=2"], 48_000 + 12 * 1_216)],
)
def test_disk_by_hand(overrides: list[str], checkpoint: int, tmp_path: Path) -> None:
    """12 bytes a weight, or 4 a weight and 12 a factor; three checkpoints, two best policies, transcripts, a copy."""
    peak = 3 * checkpoint + 2 * 48_000 + 20_000_000
    assert disk(config_of(*overrides), TOY) == Disk(48_000, checkpoint, 2, peak)
    rarer = disk(config_of(*overrides, "save_every=10", "eval.every=3"), TOY)
    assert rarer == Disk(48_000, checkpoint, 3, peak + 48_000)
    assert disk(config_of(*overrides, f"model={tmp_path}"), TOY).peak == peak + 48_000
