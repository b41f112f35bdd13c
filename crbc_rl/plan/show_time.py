"""Prints the seconds of an update, and what they rest on."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_rl.config import TrainConfig
from crbc_rl.plan.hardware import GIGA, TERA, Hardware
from crbc_rl.plan.runtime import Phase, total
from crbc_rl.plan.workload import Workload


def show_time(
    phases: tuple[Phase, ...],
    config: TrainConfig,
    work: Workload,
    hardware: Hardware,
    max_steps: int,
    console: Console,
    *,
    gpus: int,
    nodes: int,
) -> None:
    """Print the phases, and every assumption behind them."""
    table = Table("time of an update, by estimate", "seconds", "limited by")
    table.columns[1].justify = "right"
    for phase in phases:
        table.add_row(phase.name, seconds(phase.seconds), phase.bound)
    table.add_section()
    table.add_row("[bold]together[/]", seconds(total(phases)), "")
    console.print(table, highlight=False)
    console.print("This assumes:", highlight=False)
    for assumed in assumptions(config, work, hardware, max_steps, gpus, nodes):
        console.print(f"  {escape(assumed)}", highlight=False, soft_wrap=True)


def seconds(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def assumptions(
    config: TrainConfig, work: Workload, hardware: Hardware, max_steps: int, gpus: int, nodes: int
) -> Iterator[str]:
    """What an estimate rests on, one statement a line."""
    yield f"a prompt has {work.prompt:g} tokens and a reply {work.reply:g} of {config.rollout.max_new_tokens}, on average"
    yield f"{100 * work.success:g} % of the rollouts end after {work.solved:g} turns, the others after {max_steps}"
    yield (
        "a turn begins when the longest reply of the turn before has ended"
        if work.lockstep
        else "no member waits for the replies of others"
    )
    yield f"members that have ended are {'' if work.kept else 'not '}sampled on"
    yield (
        f"{hardware.name}: {100 * hardware.flops_share:g} % of {hardware.flops / TERA:g} TFLOP/s, "
        f"{100 * hardware.memory_share:g} % of {hardware.memory / GIGA:,g} GB/s, "
        f"and {1e3 * hardware.layer:g} ms a layer in each decode step"
    )
    between = f", {hardware.network / GIGA:g} GB/s for each to other nodes" if nodes > 1 else ""
    yield f"{gpus} GPUs on {nodes} node{'s' * (nodes > 1)}: {hardware.link / GIGA:g} GB/s within a node{between}"
    yield "nothing for the engine's waking, tensor parallelism's exchanges, padding, tokenizing, figures and saving"
    yield "docs/runtime.md has the sources, and how far an estimate was off"
