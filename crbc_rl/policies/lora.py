"""LoRA, through peft: the weights of a model are frozen, and low-rank factors are trained.

The model without its factors is the reference, so no second copy is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from crbc_envs.errors import install_extra
from crbc_rl.distributed import full_tensor, full_tensors
from crbc_rl.errors import ConfigError
from crbc_rl.policies.files import as_config_error

FILE, OF_PEFT = "adapters.safetensors", "adapter_model.safetensors"

OBEYED = (
    "alpha_pattern bias exclude_modules fan_in_fan_out layers_pattern layers_to_transform lora_alpha lora_bias "
    "modules_to_save r rank_pattern target_modules target_parameters use_dora use_rslora"
)
"""Fields of adapter_config.json that say what the factors mean."""
REFUSED = "alora_invocation_tokens arrow_config layer_replication megatron_config use_bdlora use_qalora"
"""Those of adapters that are more than factors to add. Training alone reads the others."""


def merge_adapter(model: PreTrainedModel, folder: Path, about: dict[str, Any]) -> None:
    """Add the factors that peft wrote into a folder with the adapter_config.json `about` to the weights of their base.
    Raises `ConfigError` for factors that are not those of this model, and for adapters of another kind."""
    try:
        from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{folder} is an adapter, which needs peft: {install_extra('lora')}") from missing
    wrong = [name for name in REFUSED.split() if about.get(name)]
    if about.get("peft_type") != "LORA" or wrong:
        raise ConfigError(f"{folder}: an adapter of another kind than LoRA {wrong}: merge it into a model with peft")
    with as_config_error(f"{folder / OF_PEFT} cannot be read (copy it again)"):
        factors = load_file(folder / OF_PEFT)
    with (
        warnings.catch_warnings(action="ignore"),
        as_config_error(f"{folder}: the adapter is not one of {model.config.name_or_path}"),
    ):
        adapted = get_peft_model(model, LoraConfig(**{name: about[name] for name in OBEYED.split() if name in about}))
        set_peft_model_state_dict(adapted, factors)
        own = get_peft_model_state_dict(adapted, save_embedding_layers=False)
        if differing := sorted(factors.keys() ^ own.keys()):
            raise ValueError(f"{len(differing)} factors differ, such as {differing[0]}; if it is, merge it with peft")
        adapted.merge_and_unload()


def adapt(model: nn.Module, rank: int, seed: int) -> None:
    """Add factors A, drawn from `seed`, and B, zero, to every linear layer of the language model's blocks.

    They add 2 B A to the weight. All other parameters are frozen. Raises `ConfigError` where peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as missing:
        raise ConfigError(f"policy.lora_rank needs peft, which is not installed: {install_extra('lora')}") from missing
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and ".layers." in n and "visual" not in n]
    if not names:
        raise ConfigError("policy.lora_rank: the model has no linear layers in .layers.: leave it out, or take another")
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names), model)
    generator = torch.Generator().manual_seed(seed)
    _train_factors_alone(model)
    for name, factor in model.named_parameters():
        if ".lora_A." in name:  # drawn on the CPU, so that every device gets the same factors
            factor.data.copy_(torch.randn(factor.shape, generator=generator) / factor.shape[1] ** 0.5)


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """Disable the factors within the context: the model is the reference."""
    layers = list(_adapted(model).values())
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        _train_factors_alone(model)  # peft does not restore requires_grad


def merged_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight with its factors added, by its name in a model without LoRA. All ranks must iterate over all."""
    layers = _adapted(model)
    for name, tensor in full_tensors(model):
        if ".lora_" in name:
            continue
        place, marked, rest = name.partition(".base_layer.")
        if marked and rest == "weight":
            a, b = (full_tensor(factors["default"].weight) for factors in (layers[place].lora_A, layers[place].lora_B))
            tensor = tensor + layers[place].scaling["default"] * (b @ a)
        yield f"{place}.{rest}" if marked else name, tensor


def save_adapters(model: nn.Module, place: Path, main: bool) -> None:
    """Write the factors only; every rank calls this."""
    factors = {name: tensor.cpu().contiguous() for name, tensor in full_tensors(model) if ".lora_" in name}
    if main:
        save_file(factors, place / FILE)


def load_adapters(model: nn.Module, place: Path) -> None:
    """Load saved factors. Raises `ConfigError` where they are not those of this model and rank."""
    own = {name: factor for name, factor in model.named_parameters() if ".lora_" in name}
    with as_config_error(f"{place / FILE} cannot be read"):
        kept = load_file(place / FILE)
    if {n: t.shape for n, t in kept.items()} != {n: t.shape for n, t in own.items()}:
        raise ConfigError(f"{place / FILE}: its factors are not those of this model and policy.lora_rank")
    for name, factor in own.items():
        factor.data.copy_(kept[name])


def _train_factors_alone(model: nn.Module) -> None:
    for name, weight in model.named_parameters():
        weight.requires_grad_(".lora_" in name)


def _adapted(model: nn.Module) -> dict[str, Any]:
    """The layers of peft that have factors, by name."""
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
