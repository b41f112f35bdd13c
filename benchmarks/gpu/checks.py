"""The checks by name, in order: small ones first, so that half an hour that is cut short has shown the most."""

from __future__ import annotations

from benchmarks.gpu import exact, scale, training
from benchmarks.gpu.record import Check

CHECKS: dict[str, Check] = {
    "logprobs": exact.logprobs,
    "bfloat16": exact.bfloat16,
    "lora": exact.lora,
    "critic": exact.critic,
    "vision": exact.vision,
    "offload": training.offload,
    "adamw": training.adamw,
    "resume": training.resume,
    "training": training.training,
    "paper": scale.paper,
    "padding": scale.padding,
    "saving": scale.saving,
}
