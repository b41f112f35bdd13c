"""`crbc train CONFIG --seeds 0-4`: the same training with several seeds, side by side, and their results together."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_lab.child_runs import ChildRun, run_children, side_by_side
from crbc_lab.commands.console import print_line
from crbc_lab.plan.check import check_run
from crbc_lab.progress import Bars
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import begun, finished, is_run, own_model, require_same
from crbc_rl.runs.lines import last_record
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.own import LOG


def train_seeds(
    config: TrainConfig,
    seeds: Sequence[int],
    folder: Path | None,
    resume: bool,
    jobs: int | None,
    console: Console,
    follow_links: bool = False,
) -> bool:
    """Train `config` with each seed, `jobs` at a time, in runs/NAME-seedSEED or in FOLDER/seedSEED.

    With `resume`, runs that have ended are left alone, begun ones go on and the others start. Returns whether none
    failed. Raises `ConfigError` before anything starts, for what would stop every run or is no run to continue.
    """
    if "WORLD_SIZE" in os.environ:
        raise ConfigError("--seeds: torchrun starts the processes of one run; start it once for each --seed instead")
    children = [_child(config, seed, folder, follow_links) for seed in seeds]
    for child in children:
        if is_run(child.folder) and begun(child.folder):
            if not resume:
                raise ConfigError(f"{child.folder} already holds a run: add --resume, or --run DIR for other folders")
            require_same(child.folder, child.config)
            child.status = 0 if finished(child.folder, config.updates) else None
    left = [child for child in children if child.status is None]
    if left:
        check_run(own_model(left[0].folder, left[0].config), online=True).require()
    jobs = min(jobs or side_by_side(config), max(1, len(left)))
    done = f", {len(children) - len(left)} of them finished before" if len(left) < len(children) else ""
    print_line(console, f"{config.name}  {len(children)} seeds{done}, {jobs} at a time; what each says is in its {LOG}")
    with _Progress(children, config.updates, console) as progress:
        complete = run_children(left, jobs, progress.look, progress.stopping)
    _show(children, console)
    if not complete:
        console.print("[yellow]stopped; everything is saved[/]\nto continue: the same command with --resume")
    return not any(child.failed for child in children)


def _child(config: TrainConfig, seed: int, folder: Path | None, follow_links: bool) -> ChildRun:
    place = Path("runs") / f"{config.name}-seed{seed}" if folder is None else folder / f"seed{seed}"
    return ChildRun(f"seed {seed}", config.model_copy(update={"seed": seed}), place, follow_links=follow_links)


class _Progress(Bars):
    """One bar for each seed on a terminal, elsewhere a line now and then; and a line for each seed that has ended."""

    def __init__(self, children: Sequence[ChildRun], updates: int, console: Console) -> None:
        super().__init__(console, self._state)
        self._cells = [child for child in children if child.status is None]
        self._updates = updates
        self._tasks = {child.name: self.add(child.name, total=updates, start=False) for child in self._cells}
        self._ended: set[str] = set()
        self._started: set[str] = set()

    def look(self) -> None:
        for child in self._cells:
            if child.process is not None and child.name not in self._started:
                self._started.add(child.name)
                self._bars.start_task(self._tasks[child.name])
            record = last_record(child.folder / "metrics.jsonl")
            self.update(self._tasks[child.name], completed=record.get("update", 0))
            if child.status is not None and child.name not in self._ended:
                self._ended.add(child.name)
                self.print(f"{child.name}: {_outcome(child, self._updates)}")

    def stopping(self) -> None:
        for child in self._cells:
            if child.running:
                self.update(self._tasks[child.name], description=f"{child.name}, stopping")

    def _state(self) -> str:
        return "  " + "; ".join(f"{child.name}: {self._doing(child)}" for child in self._cells if child.running)

    def _doing(self, child: ChildRun) -> str:
        """What its log says last of its progress, or the update that follows the last one there."""
        log = (child.folder / LOG).read_text(encoding="utf-8", errors="replace")[-2_000:]
        update, phase = [("0", ": start"), *re.findall(r"^ *update +(\d+) of \d+(: .*)?", log, re.M)][-1]
        return f"update {update if phase else min(int(update) + 1, self._updates)} of {self._updates}{phase}"


def _outcome(child: ChildRun, updates: int) -> str:
    if child.failed:
        return escape(f"failed with status {child.status}: {child.last_log_line()} ({child.folder / LOG})")
    if finished(child.folder, updates):
        return "finished"
    return "stopped" if child.process is not None or begun(child.folder) else "not begun"


def _show(children: Sequence[ChildRun], console: Console) -> None:
    """The held-out success of every seed before and after its training, and over the finished ones."""
    table = Table("seed", "before", "after", "95 % interval", "run", title="held-out success (test split)")
    pairs = []
    for child in children:
        tested = evaluated(read_metrics(child.folder), "test") if begun(child.folder) else []
        ended = len(tested) > 1 and finished(child.folder, child.config.updates)  # else the last test is an older one
        row = [f"{record['test/success']:.1%}" for record in (*tested[:1], *tested[1:][-1:] * ended)]
        if ended:
            last = tested[-1]
            row.append(f"{last['test/low']:.1%} to {last['test/high']:.1%}")
            pairs.append((tested[0]["test/success"], last["test/success"]))
        else:
            row = [*row, *[""] * (2 - len(row)), _outcome(child, child.config.updates).partition(":")[0]]
        table.add_row(str(child.config.seed), *row, escape(str(child.folder)))
    if len(pairs) > 1:
        table.add_section()
        shown = [f"{mean(values):.1%} ± {stdev(values):.1%}" for values in zip(*pairs, strict=True)]
        table.add_row("mean ± sd", *shown, "", f"{len(pairs)} seeds")
    console.print(table)
