"""`crbc train CONFIG --dry-run`: everything that can be checked about a run before it needs a GPU.

A config that can never work is a `ConfigError`. What is missing on this machine is a finding, with the command that
installs it, since a plan is often made on another machine than the one that trains. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crbc_lab.plan.architecture import Architecture
from crbc_lab.plan.batches import Batches, arithmetic, contradictions
from crbc_lab.plan.check import Checked, check_run
from crbc_lab.plan.hardware import CPU, PER_NODE, Hardware, check_nodes, fewest_nodes, find_hardware
from crbc_lab.plan.memory import Disk, Memory, disk, estimate, microbatch, tokens_per_row
from crbc_lab.plan.runtime import Job, Phase, whole_run
from crbc_lab.plan.runtime import estimate as estimate_time
from crbc_lab.plan.workload import Workload, workload_of
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.policies.engines import ENGINES, engine_of


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of `config` for `gpus` GPUs of `gib` GiB.

    `memory` is None without the model's shape, without a limit on prompts, or for an engine of one's own; `disk` is
    None without the model's shape. `phases` are the seconds of an update on such `hardware`, by its `work`, and
    `seconds` those of the run with its evaluations; None without the model's shape, and where the lengths of prompts
    are not known. Each of `remedies` is a change that makes the run fit; it is empty where the run fits.
    """

    config: TrainConfig
    gpus: int
    nodes: int
    gib: float
    hardware: Hardware
    checked: Checked
    batches: Batches
    memory: Memory | None
    disk: Disk | None
    work: Workload | None
    phases: tuple[Phase, ...] | None
    seconds: float | None
    remedies: tuple[str, ...]


def make_plan(
    config: TrainConfig,
    gpus: int | None = None,
    gib: float | None = None,
    online: bool = False,
    nodes: int | None = None,
    hardware: str = "a100",
) -> Plan:
    """Plan `config` for `gpus` GPUs with `gib` GiB of memory, one rank each, dealt evenly to `nodes` nodes.

    `hardware` "cpu" is this machine's processor with its main memory, for one process. `gib` is 80 by default on a GPU.
    The default of `gpus` is 8 for each of `nodes`; without these it is 8 with an engine that can split weights (vLLM),
    as in the paper, else 1. The default of `nodes` is the fewest that hold them. Raises `ConfigError` naming everything
    that can never work.
    """
    own = hardware.lower() == CPU
    if own and (gpus, nodes) != (None, None):
        raise ConfigError("--hardware cpu is one process of this machine: leave --gpus and --nodes out")
    if own and not engine_of(config).is_transformers:
        raise ConfigError(
            f"--hardware cpu: {config.generator.engine} samples on GPUs: add generator.engine=transformers"
        )
    if own:
        gpus = 1
    if gpus is None:
        gpus = PER_NODE * (nodes or 1) if nodes or engine_of(config).supports_tensor_parallel else 1
    if gpus < 1 or (gib is not None and gib <= 0):
        raise ConfigError(f"--gpus {gpus} --gpu-memory {gib}: both must be above zero")
    rates = None if own else find_hardware(hardware, config.policy.precision)
    nodes = fewest_nodes(gpus) if nodes is None else nodes
    check_nodes(gpus, nodes)
    checked = check_run(config, gpus=gpus, online=online)
    config, model = checked.config, checked.model
    if rates is None:
        from crbc_lab.plan import processor  # waits for torch

        rates = processor.this_processor(config.threads, model.hidden if model is not None else processor.SIZE)
        gib = gib or processor.main_memory()
    gib = 80.0 if gib is None else gib
    memory: Memory | None = None
    remedies: list[str] = []
    known = config.generator.engine in ENGINES
    if known and model is not None and tokens_per_row(config) is not None:
        needed = partial(estimate, gib=gib, reserved=rates.reserve)
        more = () if own else (gpus * 2, gpus * 4, gpus * 8)
        memory, remedies = needed(config, model, gpus), list(_remedies(config, model, gpus, gib, needed, more))
    batches = arithmetic(config, gpus, checked.env.max_steps)
    space = None if model is None else disk(config, model)
    phases: tuple[Phase, ...] | None = None
    work, seconds = workload_of(config, checked.lengths) if known and model is not None else None, None
    if model is not None and work is not None:
        job = Job(config, model, rates, work, checked.env.max_steps, gpus, nodes)
        phases, seconds = estimate_time(job), whole_run(job)
    return Plan(
        config, gpus, nodes, gib, rates, checked, batches, memory, space, work, phases, seconds, tuple(remedies)
    )


def _remedies(
    config: TrainConfig, model: Architecture, gpus: int, gib: float, needed: Callable[..., Memory], more: Sequence[int]
) -> Iterator[str]:
    """Single changes that make a run fit into memory, the smallest of each kind; none where it fits."""
    if needed(config, model, gpus).fits(gib):
        return
    rows, length, share = microbatch(config, gpus), tokens_per_row(config) or 0, config.generator.memory
    kinds: list[tuple[str, str, list[Any]]] = [
        ("optim", "microbatch", [rows >> halvings for halvings in range(1, rows.bit_length())]),
        ("optim", "microbatch_tokens", [rows * length >> halvings for halvings in range(1, rows.bit_length())]),
        ("policy", "gradient_checkpointing", [True]),
        ("policy", "precision", ["bfloat16"]),
        ("policy", "offload_reference", [True]),
        ("generator", "memory", sorted((tenths / 10 for tenths in range(1, 10)), key=lambda other: abs(other - share))),
    ]
    for section, key, values in kinds:
        for value in values:
            part = getattr(config, section).model_copy(update={key: value})
            if needed(config.model_copy(update={section: part}), model, gpus).fits(gib):
                yield f"--set {section}.{key}={str(value).lower()}"
                break
    for several in more:
        if not [*contradictions(config, several, model)] and needed(config, model, several).fits(gib):
            yield f"{several} GPUs"
            return
