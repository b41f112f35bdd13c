"""What is in a checkpoint: the model, the optimizer's state and the number of the update, without pickle.

The model is a plain transformers checkpoint. Every rank also writes its shards of the optimizer's tensors,
trainer-RANK-of-SIZE.safetensors. A run with another number of ranks reads all of these files. `folders` writes and
finds the folders.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from crbc_envs.storage.files import read_json
from crbc_rl.distributed import Distributed, kept_tensors
from crbc_rl.errors import ConfigError

Named = Sequence[tuple[str, Tensor]]
"""The trained tensors by name, in the optimizer's order."""


def save_optimizer(place: Path, optimizer: torch.optim.Optimizer, named: Named, distributed: Distributed) -> None:
    """Write this rank's shards of the optimizer's tensors."""
    shards = {
        f"{name}/{slot}": (value.to_local() if isinstance(value, DTensor) else value).contiguous()
        for name, parameter in named
        for slot, value in optimizer.state[parameter].items()
    }
    save_file(shards, place / f"trainer-{distributed.rank:05d}-of-{distributed.size:05d}.safetensors")


SLOTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW keeps for each weight."""


def restore_optimizer(
    place: Path, optimizer: torch.optim.Optimizer, named: Named, distributed: Distributed | None = None
) -> None:
    """Restore the optimizer's state from the shards of any number of ranks. Where there are as many as now, each rank
    reads its own shards alone.

    Raises `ConfigError` where the state does not fit the model, or a shard is missing or damaged.
    """
    files = sorted(place.glob("trainer-*.safetensors"))
    if not files:
        raise ConfigError(f"{place}: trainer-*.safetensors are missing, the optimizer's state: copy it again")
    distributed = distributed or Distributed()
    own = len(files) == distributed.size
    try:
        shards = [safe_open(file, "pt") for file in ([files[distributed.rank]] if own else files)]
        kept = [set(shard.keys()) for shard in shards]
        for name, parameter in named:
            parts = {
                slot: [shard for shard, keys in zip(shards, kept, strict=True) if f"{name}/{slot}" in keys]
                for slot in SLOTS
            }
            if any(parts.values()):
                optimizer.state[parameter] = {
                    slot: _restored(f"{name}/{slot}", parameter, parts[slot], place, own) for slot in SLOTS
                }
    except (SafetensorError, LookupError, RuntimeError) as error:
        raise ConfigError(f"{place}: trainer-*.safetensors cannot be read: {str(error)[:200]}") from error


def _restored(key: str, parameter: Tensor, shards: list[Any], place: Path, own: bool) -> Tensor:
    """A tensor of the optimizer, put together from its shards, or this rank's shard of it where it is its `own`."""
    if key.endswith("/step"):
        return shards[0].get_tensor(key).to(parameter.device)  # where a fused step has it
    tensors = [shard.get_tensor(key) for shard in shards]
    value = torch.cat(tensors) if tensors[0].dim() else tensors[0]
    part = parameter.to_local() if own and isinstance(parameter, DTensor) else parameter
    if value.shape != part.shape:
        raise ConfigError(
            f"{place}: {key}: the optimizer's state has the shape {tuple(value.shape)}, the weight "
            f"{tuple(part.shape)}; the checkpoint is of another model: resume with the config it was written with"
        )
    return _like(parameter, value, own)


def restore_weights(path: Path, model: torch.nn.Module) -> None:
    """Copy the weights of a file into a model. Raises `ConfigError` where they are those of another, or damaged."""
    own = dict(kept_tensors(model))
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  no mapping
            if shapes != {name: tuple(weight.shape) for name, weight in own.items()}:
                raise ConfigError(f"{path}: its weights are not those of the model: restore it from a backup")
            for name, weight in own.items():
                weight.data.copy_(file.get_tensor(name))
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} cannot be read ({str(error)[:200]}): restore it from a backup") from error


def _like(parameter: Tensor, value: Tensor, own: bool) -> Tensor:
    """`value`, whole or this rank's `own` shard, with the device and sharding of `parameter`."""
    value = value.to(parameter.device, copy=True)
    if not isinstance(parameter, DTensor):
        return value
    mesh, placements = parameter.device_mesh, parameter.placements
    if own:
        return DTensor.from_local(value, mesh, placements, shape=parameter.shape, stride=parameter.stride())
    return distribute_tensor(value, mesh, placements)


def write_state(place: Path, state: dict[str, Any]) -> None:
    (place / "trainer.json").write_text(json.dumps(state))


def read_state(place: Path) -> dict[str, Any]:
    """The number of the checkpoint's update, the best validation success so far, and the sums of the calibration slope
    that credit trusts. Raises `ConfigError`."""
    path = place / "trainer.json"
    try:
        state = read_json(path)
        slope = [[float(value) for value in row] for row in state.get("slope", ([], [], []))]
        return {"update": int(state["update"]), "best": float(state["best"]), "slope": slope}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({str(error)[:100]}): restore it from a backup") from error
