"""Prompts with frames through vLLM, which needs torchvision for them; see conftest.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from crbc_envs.prompts import Prompt
from crbc_rl.batches import RolloutBatch, Turn, collate
from crbc_rl.policies.vllm import VllmPolicy, _import_vllm

pytest.importorskip("torchvision", reason="torchvision is missing, with which vLLM reads frames: scripts/test_vllm.sh")

from vision_fixtures import fresh_vision_policy

from crbc_rl.policies.vision import VisionPolicy


def frame(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


PROMPTS = [
    Prompt("You see <image> and move", (frame(112, 112),)),
    Prompt("up"),
    Prompt("<image> left <image>", (frame(84, 140), frame(112, 112))),
]


@torch.no_grad()
def furthest(turns: list[Turn], policy: VisionPolicy) -> float:
    """The largest difference between the turns' log-probabilities and the policy's."""
    batch = collate(RolloutBatch.of_turns(turns), policy.pad)
    return ((policy.logprobs(batch, 1.0)[0] - batch.old_logprobs) * batch.response_mask).abs().max().item()


@pytest.fixture
def _inspected() -> None:
    """Name the model's class: vLLM would inspect it in another process, where no operators are declared."""
    vllm, _ = _import_vllm()
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration as Model

    vllm.ModelRegistry.register_model(Model.__name__, Model)


@pytest.mark.usefixtures("_inspected")
def test_frames_are_read_as_by_transformers_also_after_an_update(tmp_path: Path) -> None:
    before, after = fresh_vision_policy(0), fresh_vision_policy(1)
    before.save(tmp_path)
    engine = VllmPolicy(tmp_path, before, max_model_len=256, gpu_memory_utilization=0.2, enforce_eager=True, images=2)
    turns = engine.generate(PROMPTS, [1, 2, 3], 1.0, 12)
    assert [turn.prompt for turn in turns] == [before.encode(prompt) for prompt in PROMPTS]
    assert furthest(turns, before) <= 1e-4
    engine.load_weights(after.model.state_dict().items())
    turns = engine.generate(PROMPTS, [1, 2, 3], 1.0, 12)
    print(f"with frames log-probabilities differ by {furthest(turns, after):.1e} at most")
    assert furthest(turns, after) <= 1e-4  # what the old weights saw in a frame is forgotten too
    assert furthest(turns, before) > 0.1
