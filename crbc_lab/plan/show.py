"""Prints a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_envs.vector.members import INDEPENDENT, SHARED
from crbc_lab.plan.hardware import GIGA, TERA
from crbc_lab.plan.memory import GIB, Disk, Memory, free, tokens_per_row
from crbc_lab.plan.plan import Plan
from crbc_lab.plan.runtime import Phase, total, validations
from crbc_rl.config import KEEP, TrainConfig
from crbc_rl.config.protocols import choices, deviations
from crbc_rl.policies.engines import engine_of
from crbc_rl.runs.transcripts import MOST_BYTES

_NOISE = {SHARED: "one stream of noise together", INDEPENDENT: "their own noise each"}


def print_plan(plan: Plan, console: Console, run: Path) -> None:
    """Print the sizes of an update, memory by purpose, time by phase, the disk for the folder `run`, and what is
    missing."""
    console.print(f"[bold]{escape(plan.config.name)}[/]: a plan; nothing is started or written", highlight=False)
    facts = Table.grid(padding=(0, 2))
    for name, text in _facts(plan):
        facts.add_row(f"[bold]{name}[/]", escape(text))
    console.print(facts, highlight=False)
    if plan.memory is not None:
        console.print(_memory(plan.memory, plan.hardware.device), highlight=False)
        _verdict(plan, plan.memory, console)
    if plan.phases is not None:
        _time(plan, plan.phases, console)
    if plan.disk is not None:
        _disk(plan, plan.disk, run, console)
    _findings(plan, console)


def _facts(plan: Plan) -> Iterator[tuple[str, str]]:
    config, batches, model, memory = plan.config, plan.batches, plan.checked.model, plan.memory
    loose = config.revision is None and not Path(config.model).is_absolute()
    pinned = (
        ", not pinned: set `revision` to a commit" if loose else f", revision {config.revision}" * bool(config.revision)
    )
    sizes = "" if model is None else f": {model.parameters:,} parameters, {model.source}"
    yield "model", config.model + sizes + pinned
    panels = [f"{size:,} {split} tasks" for split, size in plan.checked.env.panels.items()]
    env = plan.checked.env
    noise = f"; stochastic, the copies of a group have {_NOISE[env.dynamics]}" * env.stochastic
    yield "environment", f"{config.env.id}, {', '.join(panels) or 'it cannot be made here'}{noise}"
    yield "credit", " ".join([config.credit.method, *(f"{k}={v}" for k, v in config.credit.options.items())])
    if config.protocol is not None:
        yield "protocol", f"{config.protocol}: {_protocol(config)}"
    room = (
        "" if memory is None or memory.concurrent is None else f", room for {memory.concurrent:,} full replies in each"
    )
    generators = f"generators: {batches.engines}, each over {config.generator.tensor_parallel}"
    nodes = f" on {plan.nodes} nodes" if plan.nodes > 1 else ""
    device = plan.hardware.device
    gpu = f"one {device} of {plan.gib:.3g} GiB each" if memory is not None else f"one {device} each"
    if memory is None and plan.gpus == 1 and device == "GPU":
        gpu = f"on a GPU, or without one on the CPU with {config.threads} threads"
    yield "processes", f"{plan.gpus}{nodes}, {gpu}; {generators}{room}"
    tokens = tokens_per_row(config)
    limit = "" if plan.checked.env.bounded else " (assumed: register the environment with max_episode_steps)"
    yield (
        "an update",
        f"{config.rollout.num_groups} groups of {config.rollout.group_size}, {batches.groups} with each generator: "
        f"{batches.rollouts:,} rollouts of at most {plan.checked.env.max_steps} steps{limit}, "
        f"so at most {batches.rows:,} rows" + ("" if tokens is None else f" of at most {tokens:,} tokens"),
    )
    yield (
        "its training",
        f"at most {batches.optimizer_steps:,} optimizer steps of {config.optim.minibatch} rows; "
        f"on each process {batches.rows_per_rank} of them, at most {batches.microbatch} to a pass",
    )
    if config.transcripts:
        kept = f"{config.transcripts} held-out tasks before and after, and a training group at each validation"
        yield "transcripts", f"{kept}: at most {MOST_BYTES // 10**6} MB (transcripts=0: none)"
    yield (
        "the run",
        f"{config.updates} updates; {validations(config)} validations with {config.eval.episodes} episodes, "
        f"2 tests with {config.eval.test_episodes}",
    )
    if memory is not None:
        machine = "the machine" if plan.nodes == 1 else "each machine"
        yield "main memory", f"{memory.main / plan.nodes / GIB:.0f} GiB of {machine}, while all processes load"
    elif tokens is None:
        yield "memory", "not estimated: rollout.max_prompt_tokens sets no limit to prompts"
    if plan.phases is None and model is not None:
        yield "time", f"not estimated: the lengths of {config.env.id}'s prompts {config.env.prompt!r} are unknown"


def _protocol(config: TrainConfig) -> str:
    """What the protocol says, and what the config does otherwise."""
    said = ", ".join(f"{choice.key}={_plain(choice.value)}" for choice in choices(config.protocol, config.env.id))
    other = [f"{choice.key}={_plain(value)} (there {_plain(choice.value)})" for choice, value in deviations(config)]
    return f"{said}. " + (f"This config differs: {', '.join(other)}" if other else "This config says the same")


def _plain(value: object) -> str:
    """A value as YAML writes it."""
    return json.dumps(value).strip('"')


def _memory(memory: Memory, device: str) -> Table:
    table = Table(f"on one {device}, GiB at most", *memory.phases)
    for column in table.columns[1:]:
        column.justify = "right"
    names = {name: None for parts in memory.phases.values() for name in parts}
    for name in sorted(names, key=lambda name: name == "reserve"):
        table.add_row(name, *(f"{parts[name] / GIB:.1f}" if name in parts else "" for parts in memory.phases.values()))
    table.add_section()
    table.add_row("[bold]together[/]", *(f"{sum(parts.values()) / GIB:.1f}" for parts in memory.phases.values()))
    return table


def _verdict(plan: Plan, memory: Memory, console: Console) -> None:
    peak = f"{memory.peak / GIB:.1f} GiB at most"
    if memory.fits(plan.gib):
        console.print(f"[green]fits in {plan.gib:.3g} GiB[/]: {peak}, by estimate", highlight=False)
        return
    why = "vLLM's memory is too small for one reply of full length" if memory.concurrent == 0 else peak
    console.print(f"[yellow]does not fit in {plan.gib:.3g} GiB[/]: {why}, by estimate", highlight=False)
    for remedy in plan.remedies or ("no single change of the config is enough; combine several, or use larger GPUs",):
        console.print(f"  what helps: {escape(remedy)}", highlight=False, soft_wrap=True)


def _time(plan: Plan, phases: tuple[Phase, ...], console: Console) -> None:
    """Print the phases, and every assumption behind them."""
    table = Table("time of an update, by estimate", "seconds", "limited by")
    table.columns[1].justify = "right"
    for phase in phases:
        table.add_row(phase.name, seconds(phase.seconds), phase.bound)
    table.add_section()
    table.add_row("[bold]together[/]", seconds(total(phases)), "")
    console.print(table, highlight=False)
    if plan.seconds is not None:
        console.print(f"the run with its evaluations: {_duration(plan.seconds)}, by estimate", highlight=False)
    console.print("This assumes:", highlight=False)
    for assumed in _assumptions(plan):
        console.print(f"  {escape(assumed)}", highlight=False, soft_wrap=True)


def seconds(value: float) -> str:
    """Three digits, and at most three after the point."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def _duration(value: float) -> str:
    """Minutes, or hours with a digit after the point."""
    minutes = max(1, round(value / 60))
    return f"{minutes} minute{'s' * (minutes > 1)}" if minutes < 120 else f"{value / 3600:.1f} hours"


def _assumptions(plan: Plan) -> Iterator[str]:
    """What an estimate rests on, one statement a line."""
    work, hardware = plan.work, plan.hardware
    if work is None:
        return
    limit = plan.config.rollout.max_new_tokens
    yield f"a prompt has {work.prompt:.4g} tokens and a reply {work.reply:.4g} of at most {limit}, on average"
    yield f"prompts deviate by {work.spread:.3g} tokens, so passes have padding, and ranks wait for the longest"
    most = plan.checked.env.max_steps
    yield f"{100 * work.success:g} % of the rollouts end after {work.solved:g} turns, the others after {most}"
    yield (
        "a turn begins when the longest reply of the turn before has ended"
        if work.lockstep
        else "no member waits for the replies of others"
    )
    per_layer = hardware.eager if engine_of(plan.config).is_transformers else hardware.layer
    yield (
        f"{hardware.name}: {100 * hardware.flops_share:g} % of {hardware.flops / TERA:.3g} TFLOP/s, "
        f"{100 * hardware.memory_share:g} % of {hardware.memory / GIGA:,.4g} GB/s, "
        f"{1e3 * per_layer:g} ms a layer in each decode step"
    )
    between = f", and {hardware.network / GIGA:g} GB/s for each to other nodes" if plan.nodes > 1 else ""
    nodes = "one node" if plan.nodes == 1 else f"{plan.nodes} nodes"
    if hardware.device == "GPU":
        yield f"{plan.gpus} GPUs on {nodes}: {hardware.link / GIGA:g} GB/s within a node{between}"
    where = "sampling and training" if hardware.shares else "sampling"
    yield (
        f"{work.shared:.4g} tokens of a prompt are those that another begins with, and read once in {where}"
        if work.shared
        else "each prompt is read whole; where prompts begin alike, they are read once, and it takes less"
    )
    yield "nothing for further rounds, engines' waking, tensor parallelism's exchanges, tokenizing, figures and saving"
    yield "docs/runtime.md has the sources, and how far the estimate is off"


def _disk(plan: Plan, disk: Disk, run: Path, console: Console) -> None:
    """What the run folder takes, and whether there is as much room."""
    room = free(run)
    enough = "[green]fits on the disk" if disk.peak <= room else "[yellow]does not fit on this disk"
    console.print(
        f"{enough}[/]: the run takes {_size(disk.peak)} at most: {KEEP} checkpoints of {_size(disk.checkpoint)} and "
        f"one being written, and {disk.bests} policies of {_size(disk.model)}, the best ones; {_size(room)} are free",
        highlight=False,
        soft_wrap=True,
    )
    if plan.nodes > 1:
        console.print("on several nodes the run folder must be on a disk that all of them share", highlight=False)


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def _findings(plan: Plan, console: Console) -> None:
    if not plan.checked.findings:
        console.print("[green]everything is installed here[/]")
        return
    console.print("missing here, but needed on the training machine:", highlight=False)
    for finding in plan.checked.findings:
        console.print(
            f"  [yellow]{escape(finding.name)}[/] (for {escape(finding.needed_for)}): {escape(finding.fix)}",
            highlight=False,
            soft_wrap=True,
        )
