"""The processes that train together: one per GPU, or several on processors for tests, started by torchrun.

Rollouts are shared out by group and then given to all, so every process knows the whole sample, computes the same
credit and cuts the same mini-batches; of the passes over each it makes its share. What trains is so the same
however many processes there are, up to the rounding of sums.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from crbc_rl.errors import ConfigError

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class World:
    """Process `rank` of `size`, computing on `device`."""

    rank: int = 0
    size: int = 1
    device: torch.device = _CPU

    @classmethod
    def join(cls) -> World:
        """The world that torchrun started, or else this process alone, on a GPU where there is one."""
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if "WORLD_SIZE" not in os.environ:
            return cls(device=device)
        if not dist.is_initialized():
            dist.init_process_group(_backend(device))
        return cls(dist.get_rank(), dist.get_world_size(), device)

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """Every process's `value`, in order of rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def share_of(self, count: int, what: str) -> range:
        """This process's share of `count` things. Raises `ConfigError` where they cannot be shared out evenly."""
        if count % self.size:
            raise ConfigError(f"{count} {what} cannot be shared out over {self.size} processes: make it a multiple")
        each = count // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def shard(self, model: nn.Module, precision: str, offload: bool = False) -> None:
        """Shard `model` over all processes with FSDP2, each of its blocks by itself.

        With "bfloat16" it computes in that and keeps its weights in float32; `offload` keeps them in main memory.
        """
        if not dist.is_initialized():  # one process alone that wants mixed precision
            dist.init_process_group(_backend(self.device), store=dist.HashStore(), rank=0, world_size=1)
        policy = MixedPrecisionPolicy()
        if precision == "bfloat16":
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.bfloat16)
        options: dict[str, Any] = {
            "mesh": init_device_mesh(self.device.type, (self.size,)),
            "mp_policy": policy,
            "offload_policy": CPUOffloadPolicy(pin_memory=self.device.type == "cuda") if offload else OffloadPolicy(),
        }
        blocks = set(getattr(model, "_no_split_modules", None) or ())
        for module in model.modules():
            if type(module).__name__ in blocks:
                fully_shard(module, **options)
        fully_shard(model, **options)


def _backend(device: torch.device) -> str:
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def whole_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name, put together from its shards: all processes have to ask, for all of them."""
    for name, tensor in (*model.named_parameters(), *_persistent(model)):
        yield name, whole(tensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor put together from its shards, without a gradient."""
    data = tensor.detach()
    return data.full_tensor() if isinstance(data, DTensor) else data


def _persistent(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    kept = model.state_dict().keys()
    return ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
