"""The sampling engines by name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from crbc_rl.config import TrainConfig
from crbc_rl.config.extensions import called_with, is_extension, load
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.policies.api import Generator
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy

Create = Callable[[TrainConfig, TransformersPolicy], Generator]
"""Makes a generator. The policy is the trained one, whose tokenizer and device the generator shares; its weights are
given to `Generator.load_weights` afterwards."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A sampling engine: how its generator is made, and what it needs."""

    create: Create
    package: str = ""
    """The package that it needs beyond those of training."""
    extra: str = ""
    """The extra of this package that installs it, such as "vllm"."""
    supports_tensor_parallel: bool = False
    """Whether `generator.tensor_parallel` ranks can share one copy of the weights."""
    is_transformers: bool = False
    """Whether it samples with the trained model's own code. Where the model is whole, it then is the generator."""


def _copy(config: TrainConfig, policy: TransformersPolicy) -> Generator:
    """A whole copy of a sharded model."""
    whole = load_policy(config.model, policy.device, config.rollout)
    whole.cast(getattr(torch, config.policy.precision))
    whole.model.requires_grad_(False)
    return whole


def _vllm(config: TrainConfig, policy: TransformersPolicy) -> Generator:
    from crbc_rl.policies.vllm import VllmPolicy

    return VllmPolicy.colocated(config, policy)


ENGINES = {
    "transformers": Engine(_copy, is_transformers=True),
    "vllm": Engine(_vllm, package="vllm", extra="vllm", supports_tensor_parallel=True),
}


def engine_of(config: TrainConfig) -> Engine:
    """The engine that a config names. Raises `ConfigError` for an unknown one."""
    name = config.generator.engine
    if is_extension(name):
        engine = load(name, config.modules, "generator.engine")
        if isinstance(engine, Engine):
            return engine
        return Engine(called_with(engine, f"generator.engine: {name}", "config", "policy"))
    if name not in ENGINES:
        raise ConfigError(f"generator.engine: no engine {name!r}{nearest(name, ENGINES)}")
    return ENGINES[name]
