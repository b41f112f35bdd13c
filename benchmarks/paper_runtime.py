"""The plan's seconds beside the paper's, and how they change with what nobody stated: `python -m
benchmarks.paper_runtime` prints the tables of docs/runtime.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crbc_lab.plan.architecture import Architecture, find_architecture
from crbc_lab.plan.hardware import HARDWARE, PER_NODE, find_hardware
from crbc_lab.plan.runtime import Job, Phase, estimate, total
from crbc_lab.plan.show import seconds
from crbc_lab.plan.workload import Workload, workload_of
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.errors import ConfigError

CONFIGS = (
    "alfworld-qwen2.5-1.5b",
    "alfworld-qwen2.5-7b",
    "webshop-qwen2.5-1.5b",
    "webshop-qwen2.5-7b",
    "sokoban-qwen2.5-vl-3b",
)

PAPER = {"rollout": 154.99, "advantages": 0.330, "policy update": 20.35, "together": 187.46}
"""Seconds of an update, as the paper states them: ALFWorld with Qwen2.5-1.5B, eight A100."""

REST = "old log-probabilities, reference, rest"
BLOCKS = {
    "rollout": ("reset", "generate", "environments"),
    "advantages": ("step_credit",),
    "policy update": ("train",),
    REST: ("old", "reference", "weights"),
}
"""The parts that the paper names, and what is left of its update, by the keys of the phases."""

VARIED: dict[str, dict[str, Any]] = {
    "as above": {},
    "no reply above 254 tokens, twice the mean": {"limit": 254},
    "decode steps that only read": {"layer": 0.0},
    "replies of 64 tokens": {"reply": 64},
    "replies of 256 tokens": {"reply": 256},
    "prompts of 700 tokens": {"prompt": 700},
    "10 % succeed": {"success": 0.1},
    "90 % succeed": {"success": 0.9},
    "low: 64 tokens, 90 % succeed": {"reply": 64, "success": 0.9},
    "high: 256 tokens, 10 % succeed": {"reply": 256, "success": 0.1},
}


LOGGED = {"gen": 424.643, "old_log_prob": 179.292, "ref": 175.364, "update_actor": 773.553}
"""Seconds of the first update in a public log: github.com/ZJU-REAL/SDAR, issue 51. The same loop and lengths with
Qwen2.5-3B on four A100, mini-batches of 64, passes of 8, and a reference in main memory."""

QWEN_3B = Architecture(
    source="its published shape",
    parameters=3_085_938_688,
    block=77_076_992,
    outside=311_166_976,
    layers=36,
    hidden=2_048,
    intermediate=11_008,
    heads=16,
    kv_heads=2,
    vocabulary=151_936,
    context=32_768,
    vision=False,
)


DECODED = {
    "Qwen2.5-0.5B": (24, 988_065_536, 12_288, 1_025, 311.55),
    "Qwen2.5-1.5B": (28, 3_087_428_608, 28_672, 1_025, 183.33),
    "Qwen2.5-1.5B, long": (28, 3_087_428_608, 28_672, 7_168, 176.68),
    "Qwen2.5-3B, long": (36, 6_171_877_376, 36_864, 7_168, 123.15),
    "Qwen2.5-7B": (28, 14_141_238_272, 57_344, 1_025, 84.28),
    "Qwen2.5-7B, long": (28, 14_141_238_272, 57_344, 7_168, 80.70),
}
"""Tokens per second that Qwen's published speed benchmark of Qwen2.5 states for one reply at a time in bfloat16: A100
80 GB, vLLM 0.6.3, 2,048 new tokens after 1 or 6,144. By model: layers, bytes of the weights that a step reads, bytes of
a token's keys and values, mean context, and the published rate.

The rows of 1.5B and 7B without a long prompt are two equations for `layer` and `memory_share`; the other four check
them (`tests/lab/plan/test_runtime.py`)."""

TEXTWORLD = (0.13, 3.2)
"""CPU seconds of the original ALFWorld in one process per member: a step, and a reset with the game's load. We measured
medians of 125 to 135 ms and of 3.0 to 3.4 s with TextWorld 1.7 on published games; `python -m benchmarks.envs --env
alfworld` measures both engines."""


def paper_phases(
    name: str, hardware: str = "a100", nodes: int = 1, launcher: bool = False, **changes: Any
) -> tuple[Phase, ...]:
    """The phases of a paper config, in our loop or in the launcher's.

    `changes` are to its workload; "limit" is the most tokens of a reply, "layer" the GPU's seconds for a layer.
    """
    rates = find_hardware(hardware)
    rates = replace(rates, layer=changes.pop("layer", rates.layer))
    limit = changes.pop("limit", None)
    config = load_config(f"paper/{name}", [] if limit is None else [f"rollout.max_new_tokens={limit}"])
    work = _work(config, launcher, changes)
    return estimate(Job(config, _model(config), rates, work, config.env.kwargs["max_steps"], PER_NODE * nodes, nodes))


def blocks(phases: Iterable[Phase]) -> dict[str, float]:
    """Seconds by the parts that the paper names."""
    found = dict.fromkeys(BLOCKS, 0.0)
    for phase in phases:
        found[next(name for name, keys in BLOCKS.items() if phase.key in keys)] += phase.seconds
    return {**found, "together": sum(found.values())}


def comparison() -> str:
    """The paper's seconds, the plan's in the launcher's loop with their ratio, and the plan's in our loop."""
    stated = {**PAPER, REST: 2 * PAPER["together"] - sum(PAPER.values())}
    theirs, ours = (blocks(paper_phases(CONFIGS[0], launcher=launcher)) for launcher in (True, False))
    rows = [
        (name, f"{stated[name]:.2f}", seconds(theirs[name]), f"{theirs[name] / stated[name]:.2f}", seconds(ours[name]))
        for name in theirs
    ]
    return _table(("seconds", "paper", "plan, verl-agent's loop", "plan / paper", "plan, our loop"), rows)


def elsewhere() -> str:
    """The seconds of another run of that loop, and the plan's."""
    config = load_config(
        f"paper/{CONFIGS[0]}", ["optim.minibatch=64", "optim.microbatch=8", "optim.score_microbatch=8"]
    )
    work = _work(config, launcher=True, changes={"success": 0.0})
    phases = estimate(Job(config, QWEN_3B, HARDWARE["a100"], work, max_steps=50, gpus=4, nodes=1))
    keys = {"gen": BLOCKS["rollout"], "old_log_prob": ("old",), "ref": ("reference",), "update_actor": ("train",)}
    planned = {name: sum(phase.seconds for phase in phases if phase.key in keys[name]) for name in keys}
    rows = [(f"`{k}`", seconds(s), seconds(planned[k]), f"{planned[k] / s:.2f}") for k, s in LOGGED.items()]
    return _table(("seconds", "log", "plan", "plan / log"), rows)


def by_phase() -> str:
    """All phases of both loops."""
    theirs, ours = (paper_phases(CONFIGS[0], launcher=launcher) for launcher in (True, False))
    rows = [
        (a.name, seconds(a.seconds), a.bound, seconds(b.seconds), b.bound) for a, b in zip(theirs, ours, strict=True)
    ]
    return _table(("phase", "verl-agent's loop, s", "limited by", "our loop, s", "limited by"), rows)


def sensitivity() -> str:
    """Seconds under other lengths and other shares of success."""
    rows = []
    for name, changes in VARIED.items():
        theirs, ours = (blocks(paper_phases(CONFIGS[0], launcher=launcher, **changes)) for launcher in (True, False))
        found = (theirs["rollout"], theirs["policy update"], theirs["together"], ours["rollout"], ours["together"])
        rows.append((name, *map(seconds, found)))
    return _table(("", "rollout", "policy update", "together", "our rollout", "our loop together"), rows)


def scaling() -> str:
    """Seconds of all the paper's configs on other GPUs and several nodes, in our loop."""
    rows = []
    for name in CONFIGS:
        cells = []
        for hardware in HARDWARE:
            for nodes in (1, 2, 4):
                try:
                    cells.append(seconds(total(paper_phases(name, hardware, nodes))))
                except ConfigError:  # its groups cannot be dealt to so many generators
                    cells.append("-")
        rows.append((name, *cells))
    heads = [f"{hardware.upper()} x {PER_NODE * nodes}" for hardware in HARDWARE for nodes in (1, 2, 4)]
    return _table(("seconds of an update", *heads), rows)


def _work(config: TrainConfig, launcher: bool, changes: dict[str, Any]) -> Workload:
    work = workload_of(config)
    if work is None:
        raise ConfigError(f"{config.name}: its lengths are not known")
    if launcher:
        work = as_verl_agent(work, config.rollout.num_groups * config.rollout.group_size)
    return replace(work, **changes)


def as_verl_agent(workload: Workload, rollouts: int) -> Workload:
    """The same work in ALFWorld by the loop of verl-agent: turns in lockstep, members that have ended sampled on, and a
    process with the original TextWorld for each member."""
    step, reset = TEXTWORLD
    return replace(workload, lockstep=True, kept=True, workers=rollouts, step=step, reset=reset)


def _model(config: TrainConfig) -> Architecture:
    model = find_architecture(config.model)
    if model is None:
        raise ConfigError(f"{config.model}: its shape is not known")
    return model


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    print("\n".join((comparison(), by_phase(), sensitivity(), elsewhere(), scaling())), end="")


if __name__ == "__main__":
    main()
