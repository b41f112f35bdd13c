"""Prints a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_envs.vector.members import INDEPENDENT, SHARED
from crbc_lab.plan import Plan
from crbc_lab.plan.disk import Disk, free
from crbc_lab.plan.memory import GIB, Memory, tokens_per_row
from crbc_lab.plan.show_time import show_time
from crbc_rl.config import KEEP, TrainConfig
from crbc_rl.config.protocols import choices, deviations

_NOISE = {SHARED: "one stream of noise together", INDEPENDENT: "their own noise each"}


def show(plan: Plan, console: Console, run: Path) -> None:
    """Print the sizes of an update, memory by purpose, time by phase, the disk for the folder `run`, and what is
    missing."""
    console.print(f"[bold]{escape(plan.config.name)}[/]: a plan; nothing is started or written", highlight=False)
    facts = Table.grid(padding=(0, 2))
    for name, text in _facts(plan):
        facts.add_row(f"[bold]{name}[/]", escape(text))
    console.print(facts, highlight=False)
    if plan.memory is not None:
        console.print(_memory(plan.memory), highlight=False)
        _verdict(plan, plan.memory, console)
    if plan.phases is not None:
        show_time(plan, plan.phases, console)
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
    found = plan.checked.env
    noise = f"; stochastic, the copies of a group have {_NOISE[found.dynamics]}" * found.stochastic
    yield "environment", f"{config.env.id}, {', '.join(panels) or 'it cannot be made here'}{noise}"
    yield "credit", " ".join([config.credit.method, *(f"{k}={v}" for k, v in config.credit.options.items())])
    if config.protocol is not None:
        yield "protocol", f"{config.protocol}: {_protocol(config)}"
    room = (
        "" if memory is None or memory.concurrent is None else f", room for {memory.concurrent:,} full replies in each"
    )
    generators = f"generators: {batches.engines}, each over {config.generator.tensor_parallel}"
    nodes = f" on {plan.nodes} nodes" if plan.nodes > 1 else ""
    yield "processes", f"{plan.gpus}{nodes}, one GPU of {plan.gib:g} GiB each; {generators}{room}"
    tokens = tokens_per_row(config)
    yield (
        "an update",
        f"{config.rollout.num_groups} groups of {config.rollout.group_size}, {batches.groups} with each generator: "
        f"{batches.rollouts:,} rollouts of at most {plan.checked.env.max_steps} steps, "
        f"so at most {batches.rows:,} rows" + ("" if tokens is None else f" of at most {tokens:,} tokens"),
    )
    yield (
        "its training",
        f"at most {batches.optimizer_steps:,} optimizer steps of {config.optim.minibatch} rows; "
        f"on each process {batches.rows_per_rank} of them, passes: {batches.passes} of {batches.microbatch}",
    )
    validations = config.updates // config.eval.every + 1
    yield (
        "the run",
        f"{config.updates} updates; {validations} validations with {config.eval.episodes} episodes, "
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


def _memory(memory: Memory) -> Table:
    table = Table("on one GPU, GiB at most", *memory.phases)
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
        console.print(f"[green]fits in {plan.gib:g} GiB[/]: {peak}, by estimate", highlight=False)
        return
    why = "vLLM's memory is too small for one reply of full length" if memory.concurrent == 0 else peak
    console.print(f"[yellow]does not fit in {plan.gib:g} GiB[/]: {why}, by estimate", highlight=False)
    for remedy in plan.remedies or ("no single change of the config is enough; combine several, or use larger GPUs",):
        console.print(f"  what helps: {escape(remedy)}", highlight=False, soft_wrap=True)


def _disk(plan: Plan, disk: Disk, run: Path, console: Console) -> None:
    """What the run folder takes, and whether there is as much room."""
    room = free(run)
    enough = "[green]fits on the disk" if disk.peak <= room else "[yellow]does not fit on this disk"
    console.print(
        f"{enough}[/]: the run takes {_size(disk.peak)} at most: {KEEP} checkpoints of {_size(disk.checkpoint)} and "
        f"one being written, the best policy of {_size(disk.model)} and one being written; {_size(room)} are free",
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
