"""The ranks that train together, started by torchrun: one per GPU, or several on the CPU for tests.

Each rank plays some of the groups and gathers those of all ranks. So every rank has the whole update, computes the same
credit and forms the same mini-batches, and runs a part of the passes over each. The result does not depend on the
number of ranks, up to the rounding of sums.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from crbc_rl.errors import ConfigError, RankError

T = TypeVar("T")
_CPU = torch.device("cpu")
PATIENCE = timedelta(hours=6)
"""For how long a rank waits for another, which may be writing a checkpoint to a slow disk. A rank that died is noticed
at once."""


@dataclass(frozen=True, slots=True)
class Distributed:
    """Rank `rank` of `size`, which computes on `device`."""

    rank: int = 0
    size: int = 1
    device: torch.device = _CPU
    patient: dist.ProcessGroup | None = None
    """The group in which ranks wait for each other outside of passes, for at most `PATIENCE`."""
    main: bool = field(init=False)
    """Whether this is rank 0, which writes files and console output."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "main", self.rank == 0)

    @classmethod
    def join(cls) -> Distributed:
        """Join the ranks that torchrun started; without torchrun, one rank. Uses the GPU where there is one.

        Raises `ConfigError` where torchrun's environment variables are there in part, or hold other words.
        """
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if "WORLD_SIZE" not in os.environ:
            return cls(device=device)
        try:
            if not dist.is_initialized():
                dist.init_process_group(_backend(device))
        except ValueError as error:  # a shell has kept variables from elsewhere
            raise ConfigError(
                f"WORLD_SIZE={os.environ['WORLD_SIZE']} is set, as by torchrun, but {' '.join(str(error).split())}: "
                "start with torchrun, or, for a single process, unset WORLD_SIZE"
            ) from error
        # Rank 0 may write for longer than the ten minutes after which NCCL gives up.
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size(), device, patient)

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in order of rank. It is pickled. Raises `RankError` where another rank has ended."""
        parts = [value] * self.size
        if self.size > 1:
            with _among_others():
                dist.all_gather_object(parts, value, group=self.patient)
        return parts

    def any(self, flag: bool) -> bool:
        """Whether `flag` is set on any rank."""
        return any(self.gather(flag))

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over all ranks of equally long arrays."""
        return np.sum(self.gather(values), axis=0)

    def barrier(self) -> None:
        """Wait for every rank, which a gathering does not. Raises `RankError` where another has ended."""
        if self.size > 1:
            with _among_others():
                dist.barrier(group=self.patient)

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def part_of(self, count: int, what: str) -> range:
        """This rank's range of `count` items. Raises `ConfigError` where `count` is not a multiple of the ranks."""
        if count % self.size:
            raise ConfigError(f"{count} {what} cannot be divided among {self.size} processes: make it a multiple")
        each = count // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def shard(self, model: nn.Module, precision: str, offload: bool = False) -> None:
        """Shard `model` over all ranks with FSDP2, block by block.

        With precision "bfloat16" the passes are in bfloat16 and the weights in float32. `offload` keeps the weights in
        main memory.
        """
        if not dist.is_initialized():  # a single rank with mixed precision
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
        if precision == "bfloat16":  # the whole model gives log-probabilities, which stay as they are
            options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
        fully_shard(model, **options)


@contextmanager
def _among_others() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo's, of a closed connection
        raise RankError("another rank has ended or does not answer: its own message says why") from error


def _backend(device: torch.device) -> str:
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def full_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name, gathered from its shards. All ranks must iterate over all of them."""
    for name, tensor in kept_tensors(model):
        yield name, full_tensor(tensor)


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor gathered from its shards, without a gradient."""
    data = tensor.detach()
    return data.full_tensor() if isinstance(data, DTensor) else data


def kept_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and the buffers that a checkpoint has, by name. A tied weight comes once."""
    yield from model.named_parameters()
    kept = model.state_dict().keys()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
