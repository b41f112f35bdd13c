"""Lists the rates of GPUs from their data sheets, and what share of these public programs reach.

No number here comes from the paper. Where a share was measured on one GPU only, it is assumed for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crbc_rl.errors import ConfigError, nearest

GIGA, TERA = 1e9, 1e12

PER_NODE = 8
"""GPUs of a node, and network adapters: one for each GPU."""

RESERVE = 4 * 2**30
"""Bytes for CUDA's context, NCCL's buffers, fragmentation, and what vLLM keeps when it sleeps. A guess."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rates of one GPU, in operations and bytes per second, and the shares of them that are reached."""

    name: str
    flops: float
    """Dense operations in bfloat16."""
    memory: float
    link: float
    """Bytes to the other GPUs of its node, in one direction."""
    network: float
    """Bytes to other nodes, in one direction, through the adapter of this GPU."""
    flops_share: float
    """What dense training reaches of `flops`. Assumed for passes without gradients and for prefill too."""
    float32: float = 0.0
    """Dense operations in float32, which torch computes without TF32. A processor's are measured in it."""
    memory_share: float = 0.848
    """What vLLM reaches of `memory` while it decodes; also assumed for the optimizer."""
    layer: float = 0.130e-3
    """Seconds of vLLM's decode step for each layer besides reading and computing: kernels' starts, and scheduling."""
    eager: float = 0.900e-3
    """Seconds of transformers' decode step for each layer, while the GPU mostly waits for the program."""
    device: str = "GPU"
    """What a rank has one of, as it is called in a plan."""
    reserve: int = RESERVE
    """Bytes that are no tensors of a plan."""
    shares: bool = False
    """Whether training reads once what turns begin with (`crbc_rl.trees`); sampling does everywhere."""


HARDWARE = {
    "a100": Hardware("A100 SXM 80 GB", 312 * TERA, 2_039 * GIGA, 300 * GIGA, 25 * GIGA, 0.60, float32=19.5 * TERA),
    "h100": Hardware("H100 SXM 80 GB", 989 * TERA, 3_350 * GIGA, 450 * GIGA, 50 * GIGA, 0.42, float32=67 * TERA),
}
"""Data sheets of NVIDIA: A100 with NVLink 3 (600 GB/s in both directions together) and HDR InfiniBand (200 Gb/s), H100
with NVLink 4 (900 GB/s) and NDR (400 Gb/s).

`flops_share`: MosaicML's llm-foundry, scripts/train/benchmarking, FSDP on eight GPUs, model "1b" at 1,024 tokens:
60.15 % on A100, 41.95 % on H100. `memory_share` and `layer`: Qwen's speed benchmark, on A100 (`DECODED` in
benchmarks/paper_runtime.py). `eager`: the same benchmark states 39.68 tokens per second of Qwen2.5-1.5B with
transformers, 25.2 ms for 28 layers, and as much for 7B."""

CPU = "cpu"
"""The name of this machine's processor, whose rates are measured (`crbc_lab.plan.processor`)."""


def find_hardware(name: str, precision: str = "bfloat16") -> Hardware:
    """A GPU by its name in `HARDWARE`, as it computes in `precision`. Raises `ConfigError` for an unknown one."""
    if name.lower() not in HARDWARE:
        known = ", ".join([*HARDWARE, CPU])
        raise ConfigError(f"--hardware {name}: its rates are not known{nearest(name, HARDWARE)}; there are {known}")
    found = HARDWARE[name.lower()]
    return found if precision == "bfloat16" else replace(found, flops=found.float32)


def fewest_nodes(gpus: int) -> int:
    """The fewest nodes to which `gpus` can be dealt evenly."""
    return next(nodes for nodes in range(1, gpus + 1) if gpus % nodes == 0 and gpus <= nodes * PER_NODE)


def check_nodes(gpus: int, nodes: int) -> None:
    """Raise `ConfigError` where `gpus` cannot be dealt evenly to `nodes` nodes of at most eight."""
    if nodes < 1 or gpus % nodes:
        raise ConfigError(f"--nodes {nodes}: {gpus} GPUs cannot be dealt evenly to {nodes} nodes")
    if gpus > nodes * PER_NODE:
        least = fewest_nodes(gpus)
        raise ConfigError(f"--nodes {nodes}: {gpus} GPUs are more than {PER_NODE} to a node: set --nodes {least}")
