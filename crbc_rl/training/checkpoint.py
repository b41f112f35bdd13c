"""Checkpoints: one folder per saved update, written atomically, without pickle.

The model is a plain transformers checkpoint. Every rank also writes its shards of the optimizer's tensors,
trainer-RANK-of-SIZE.safetensors. A run with another number of ranks reads all of these files. A manifest has the digest
of each file, so that a damaged checkpoint is noticed.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.training.files import WriteErrors, damage, write_manifest

log = logging.getLogger(__name__)

KEEP = 2

Named = list[tuple[str, Tensor]]
"""The trained tensors by name, in the optimizer's order."""


def publish(
    folder: Path, update: int, write: Callable[[Path], None], keep: int, distributed: Distributed | None = None
) -> Path:
    """Let `write` fill a temporary folder, rename it to FOLDER/<update>, and delete all but the `keep` newest.

    Folders of later updates are deleted too: training went back behind them. With several ranks all of them call this,
    and each may write its own files. Returns the folder. Raises `OSError` naming it, and then leaves the others alone.
    """
    distributed = distributed or Distributed()
    target = folder / f"{update:06d}"
    temporary = folder / f".{target.name}.tmp"
    try:
        with WriteErrors(target):
            if distributed.main:
                for left in folder.glob(".*.tmp"):  # of a killed process
                    shutil.rmtree(left)
                temporary.mkdir(parents=True)
            distributed.barrier()
            write(temporary)
            distributed.barrier()
            if distributed.main:
                write_manifest(temporary)
                shutil.rmtree(target, ignore_errors=True)
                os.replace(temporary, target)
    finally:
        if distributed.main:
            shutil.rmtree(temporary, ignore_errors=True)
    if distributed.main:
        places = published(folder)
        kept = [place for place in places if int(place.name) <= update][-keep:]
        for old in places:
            if old not in kept:
                shutil.rmtree(old)
    distributed.barrier()
    return target


def published(folder: Path) -> list[Path]:
    """The complete folders by update, oldest first. The name of an incomplete folder begins with a dot."""
    return sorted(place for place in folder.glob("[0-9]*") if place.name.isdigit() and place.is_dir())


def newest(folder: Path) -> Path | None:
    """The newest published folder whose files are as they were written; None where there is no folder.

    A warning names newer ones that are damaged. Raises `ConfigError` where all are.
    """
    wrong: list[str] = []
    for place in reversed(published(folder)):
        reason = damage(place)
        if reason is None:
            if wrong:
                log.warning("%s: %s; going on with %s instead", folder, ", ".join(wrong), place.name)
            return place
        wrong.append(f"{place.name} ({reason})")
    if wrong:
        raise ConfigError(
            f"{folder} has no undamaged checkpoint: {', '.join(wrong)}; restore one from a backup, or begin another "
            "run with crbc train CONFIG --run DIR"
        )
    return None


def save_optimizer(place: Path, optimizer: torch.optim.Optimizer, named: Named, distributed: Distributed) -> None:
    """Write this rank's shards of the optimizer's tensors."""
    shards = {
        f"{name}/{slot}": (value.to_local() if isinstance(value, DTensor) else value).contiguous()
        for name, parameter in named
        for slot, value in optimizer.state[parameter].items()
    }
    save_file(shards, place / f"trainer-{distributed.rank:05d}-of-{distributed.size:05d}.safetensors")


def restore_optimizer(place: Path, optimizer: torch.optim.Optimizer, named: Named) -> None:
    """Restore the optimizer's state from the shards of any number of ranks.

    Raises `ConfigError` where the state does not fit the model, or a shard is missing.
    """
    files = sorted(place.glob("trainer-*-of-*.safetensors"))
    if not files or len(files) != int(files[0].stem.rpartition("-")[2]):
        raise ConfigError(
            f"{place}: optimizer shards are missing; found {len(files)}, the first is {_first(files)}: copy the rest"
        )
    shards = [safe_open(file, "pt") for file in files]
    slots = {key.rpartition("/")[2] for shard in shards for key in shard.keys()}  # noqa: SIM118  no mapping
    for name, parameter in named:
        state: dict[str, Any] = {}
        for slot in sorted(slots):
            parts = [shard.get_tensor(f"{name}/{slot}") for shard in shards if f"{name}/{slot}" in shard.keys()]  # noqa: SIM118
            if not parts:
                continue
            whole = parts[0] if parts[0].dim() == 0 else torch.cat(parts)
            state[slot] = whole if whole.dim() == 0 else _like(parameter, whole, f"{place}: {name}")
        if state:
            optimizer.state[parameter] = state


def _like(parameter: Tensor, whole: Tensor, where: str) -> Tensor:
    """`whole` with the device and sharding of `parameter`."""
    if whole.shape != parameter.shape:
        raise ConfigError(
            f"{where}: the optimizer's state has the shape {tuple(whole.shape)}, the weight {tuple(parameter.shape)}; "
            "the checkpoint is of another model: resume with the config it was written with"
        )
    whole = whole.to(parameter.device, copy=True)
    if isinstance(parameter, DTensor):
        return distribute_tensor(whole, parameter.device_mesh, parameter.placements)
    return whole


def _first(files: list[Path]) -> str:
    return files[0].name if files else "none"


def write_state(place: Path, state: dict[str, Any]) -> None:
    (place / "trainer.json").write_text(json.dumps(state))


def read_state(place: Path) -> dict[str, Any]:
    return dict(json.loads((place / "trainer.json").read_text()))
