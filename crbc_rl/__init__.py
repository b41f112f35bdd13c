"""Reinforcement learning of LLM agents on long tasks: step credit, policies and a learner.

from crbc_rl import Learner, credit, load_config
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crbc_rl.version import __version__ as __version__

if TYPE_CHECKING:
    from crbc_rl import credit as credit
    from crbc_rl.batches import RolloutBatch as RolloutBatch
    from crbc_rl.batches import Turn as Turn
    from crbc_rl.config import TrainConfig as TrainConfig
    from crbc_rl.config import load_config as load_config
    from crbc_rl.credit.errors import CreditError as CreditError
    from crbc_rl.errors import ConfigError as ConfigError
    from crbc_rl.learner import Learner as Learner
    from crbc_rl.policies.api import Policy as Policy
    from crbc_rl.policies.chat import ChatPolicy as ChatPolicy
    from crbc_rl.policies.load import load_policy as load_policy
    from crbc_rl.policies.transformers import TransformersPolicy as TransformersPolicy
    from crbc_rl.policies.vision import VisionPolicy as VisionPolicy
    from crbc_rl.policies.vllm import VllmPolicy as VllmPolicy
    from crbc_rl.rollout.collect import collect as collect
    from crbc_rl.rollout.evaluate import Evaluation as Evaluation
    from crbc_rl.rollout.evaluate import evaluate as evaluate
    from crbc_rl.runs.folder import Run as Run
    from crbc_rl.training.clock import Callback as Callback

_NAMES = {
    "crbc_rl.batches": "RolloutBatch Turn",
    "crbc_rl.config": "TrainConfig load_config",
    "crbc_rl.credit.errors": "CreditError",
    "crbc_rl.errors": "ConfigError",
    "crbc_rl.learner": "Learner",
    "crbc_rl.policies.api": "Policy",
    "crbc_rl.policies.chat": "ChatPolicy",
    "crbc_rl.policies.load": "load_policy",
    "crbc_rl.policies.transformers": "TransformersPolicy",
    "crbc_rl.policies.vision": "VisionPolicy",
    "crbc_rl.policies.vllm": "VllmPolicy",
    "crbc_rl.rollout.collect": "collect",
    "crbc_rl.rollout.evaluate": "Evaluation evaluate",
    "crbc_rl.runs.folder": "Run",
    "crbc_rl.training.clock": "Callback",
}
_LAZY = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_LAZY), "credit"]


def __getattr__(name: str) -> Any:
    """Names are imported when first used: `from crbc_rl import credit` loads no deep-learning package."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "credit":
        return import_module("crbc_rl.credit")
    raise AttributeError(f"module 'crbc_rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
