"""What the checks compute with: models of random weights, rows of random tokens, and configs for them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from benchmarks.gpu.record import Machine
from crbc_lab import tiny
from crbc_lab.plan.architecture import PUBLISHED
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.config import TrainConfig, load_config, parse_config
from crbc_rl.distributed import Distributed
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vision import IMAGE_PAD, VISION_END, VISION_START, ImageProcessor, VisionPolicy

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "configs" / "paper" / "alfworld_qwen2.5_1.5b.yaml"
TEXTS = ["You see <image> and <think>box</think><action>up</action> down left right"] * 50
Lengths = tuple[int, int]


def text_model(machine: Machine) -> Path:
    """A folder with a model of Qwen2's architecture: 0.8 million parameters in the small form, else 33 million."""
    folder = machine.folder / "text"
    if not folder.exists():
        tokenizer = tiny.train_tokenizer(TEXTS)
        policy = tiny.build(tokenizer, torch.Generator().manual_seed(0))
        if not machine.small:
            wide = {"hidden_size": 896, "intermediate_size": 2432, "num_attention_heads": 14}
            policy = TransformersPolicy(Qwen2ForCausalLM(_like(policy.model.config, **wide)), tokenizer)
        randomise(policy.model, 0.06 if machine.small else 0.03)
        _publish(policy, folder)
    return folder


def vision_model(machine: Machine) -> Path:
    """A folder with a model of Qwen2.5-VL's architecture, 0.6 million parameters."""
    folder = machine.folder / "vision"
    if not folder.exists():
        tokenizer = tiny.train_tokenizer(TEXTS)
        tokenizer.add_tokens([VISION_START, IMAGE_PAD, VISION_END, "<|video_pad|>"], special_tokens=True)
        before, place, after = (tokenizer.convert_tokens_to_ids(t) for t in (VISION_START, IMAGE_PAD, VISION_END))
        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}
        text = tiny.build(tokenizer, torch.Generator()).model.config.to_dict()
        text |= {"num_hidden_layers": 2, "rope_parameters": rope, "layer_types": None}
        tower = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 128}
        config = Qwen2_5_VLConfig(
            text_config=text,
            vision_config={**tower, "fullatt_block_indexes": [1], "window_size": 56},
            image_token_id=place,
            vision_start_token_id=before,
            vision_end_token_id=after,
            video_token_id=len(tokenizer) - 1,
            tie_word_embeddings=True,
        )
        model = Qwen2_5_VLForConditionalGeneration(config)
        randomise(model, 0.06)
        _publish(VisionPolicy(model, tokenizer, ImageProcessor()), folder)
    return folder


def large_model(machine: Machine) -> Path:
    """A folder with a model of Qwen2.5-1.5B's shape; in the small form a tiny one."""
    if machine.small:
        return text_model(machine)
    folder = machine.folder / "large"
    if not folder.exists():
        tokenizer = tiny.train_tokenizer(TEXTS)
        sizes = {name: value for name, value in PUBLISHED["Qwen/Qwen2.5-1.5B-Instruct"].items() if name != "model_type"}
        ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        with torch.device(machine.device):
            model = Qwen2ForCausalLM(Qwen2Config(**sizes, **ends))
        _publish(TransformersPolicy(model, tokenizer), folder)
    return folder


def _publish(policy: TransformersPolicy, folder: Path) -> None:
    """Write a model that appears whole or not at all: another start uses it."""
    part = empty(folder.with_suffix(".part"))
    policy.save(part)
    part.rename(folder)


def empty(folder: Path) -> Path:
    """A folder with nothing in it, whatever a killed process left there."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def randomise(model: PreTrainedModel, spread: float) -> None:
    """Draw all matrices anew, so that logits are as spread as a trained model's."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                weight.normal_(0.0, spread, generator=generator)


def _like(config: Qwen2Config, **changes: Any) -> Qwen2Config:
    return Qwen2Config(**{**config.to_dict(), "layer_types": None, **changes})


def table(count: int, prompt: Lengths, reply: Lengths, vocabulary: int, frame: Path | None = None) -> RolloutBatch:
    """Rows of random tokens, each a rollout of one step, with random advantages; lengths lie within the ranges.

    With the folder of a vision model as `frame`, every prompt begins with a random frame.
    """
    rng = np.random.default_rng(0)
    turns = []
    for _ in range(count):
        first: list[int] = []
        images: tuple[np.ndarray, ...] = ()
        if frame is not None:
            images = (rng.integers(256, size=(56, 56, 3), dtype=np.uint8),)
            first = _marks(frame)
        # The upper tokens are markers, such as those of frames.
        ids, answer = (rng.integers(vocabulary - 16, size=rng.integers(low, high + 1)) for low, high in (prompt, reply))
        turns.append(Turn(first + ids.tolist(), answer.tolist(), [0.0] * len(answer), images=images))
    return replace(RolloutBatch.of_turns(turns), advantage=rng.normal(size=count))


def _marks(folder: Path) -> list[int]:
    """The tokens of one frame of 56 x 56 pixels: four image tokens between their markers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    before, place, after = tokenizer.convert_tokens_to_ids([VISION_START, IMAGE_PAD, VISION_END])
    return [before, *[place] * 4, after]


def exact_config(model: Path, **changes: Any) -> TrainConfig:
    """A config whose optimizer steps take the whole table and clip no gradient."""
    data: dict[str, Any] = {
        "name": "check",
        "model": str(model),
        "threads": torch.get_num_threads(),
        "loss": {"kl": 0.01, "entropy": 0.001},
        "optim": {"lr": 1e-4, "minibatch": 4096, "microbatch": 8, "grad_clip": 1e9},
    }
    return parse_config({**data, **changes}, "check")


def paper_config(machine: Machine, *sets: str) -> TrainConfig:
    """The paper's config for one GPU and the random model: a mini-batch is one pass. In the small form of tiny rows."""
    rows = 4 if machine.small else 32
    sets = (
        f"model={large_model(machine)}",
        "generator.engine=transformers",
        f"optim.minibatch={rows}",
        "optim.order=spread",
        *sets,
    )
    if machine.small:
        sets = (*sets, "optim.microbatch=4", "rollout.max_prompt_tokens=64", "rollout.max_new_tokens=16")
    return load_config(PAPER, sets)


def on(machine: Machine) -> Distributed:
    """One rank on the machine's device."""
    return Distributed(device=torch.device("cuda", 0) if machine.device == "cuda" else torch.device("cpu"))


CPU = Distributed()


def allocated(machine: Machine, peak: bool = False) -> int:
    """Bytes of tensors on the GPU, now or at most since the last reset; 0 on a CPU, which does not count them."""
    if machine.device == "cpu":
        return 0
    return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
