"""Prints the seconds of an update, and what they rest on."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_lab.plan import Plan
from crbc_lab.plan.hardware import GIGA, TERA
from crbc_lab.plan.runtime import Phase, total
from crbc_lab.plan.workload import workload_of
from crbc_rl.policies.engines import engine_of


def show_time(plan: Plan, phases: tuple[Phase, ...], console: Console) -> None:
    """Print the phases, and every assumption behind them."""
    table = Table("time of an update, by estimate", "seconds", "limited by")
    table.columns[1].justify = "right"
    for phase in phases:
        table.add_row(phase.name, seconds(phase.seconds), phase.bound)
    table.add_section()
    table.add_row("[bold]together[/]", seconds(total(phases)), "")
    console.print(table, highlight=False)
    console.print("This assumes:", highlight=False)
    for assumed in assumptions(plan):
        console.print(f"  {escape(assumed)}", highlight=False, soft_wrap=True)


def seconds(value: float) -> str:
    """Three digits, and at most three after the point."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def assumptions(plan: Plan) -> Iterator[str]:
    """What an estimate rests on, one statement a line."""
    work, hardware = workload_of(plan.config), plan.hardware
    if work is None:
        return
    limit = plan.config.rollout.max_new_tokens
    yield f"a prompt has {work.prompt:g} tokens and a reply {work.reply:g} of at most {limit}, on average"
    most = plan.checked.env.max_steps
    yield f"{100 * work.success:g} % of the rollouts end after {work.solved:g} turns, the others after {most}"
    yield (
        "a turn begins when the longest reply of the turn before has ended"
        if work.lockstep
        else "no member waits for the replies of others"
    )
    per_layer = hardware.eager if engine_of(plan.config).is_transformers else hardware.layer
    yield (
        f"{hardware.name}: {100 * hardware.flops_share:g} % of {hardware.flops / TERA:g} TFLOP/s, "
        f"{100 * hardware.memory_share:g} % of {hardware.memory / GIGA:,g} GB/s, "
        f"{1e3 * per_layer:g} ms a layer in each decode step"
    )
    between = f", and {hardware.network / GIGA:g} GB/s for each to other nodes" if plan.nodes > 1 else ""
    nodes = "one node" if plan.nodes == 1 else f"{plan.nodes} nodes"
    yield f"{plan.gpus} GPUs on {nodes}: {hardware.link / GIGA:g} GB/s within a node{between}"
    yield "nothing for the engine's waking, tensor parallelism's exchanges, padding, tokenizing, figures and saving"
    yield "docs/runtime.md has the sources, and how far the estimate is off"
