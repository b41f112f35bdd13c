"""`crbc train CONFIG --seeds 0-4`: the same training with several seeds, side by side, and their results together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_lab.cells import Cell, run_cells, side_by_side
from crbc_lab.plan.check import check_run
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import begun, finished, is_run, own_model, require_same
from crbc_rl.runs.lines import last_record
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.own import LOG
from crbc_rl.runs.progress import Bars


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
    cells = [_cell(config, seed, folder, follow_links) for seed in seeds]
    for cell in cells:
        if is_run(cell.folder) and begun(cell.folder):
            if not resume:
                raise ConfigError(f"{cell.folder} already holds a run: add --resume, or --run DIR for other folders")
            require_same(cell.folder, cell.config)
            cell.status = 0 if finished(cell.folder, config.updates) else None
    left = [cell for cell in cells if cell.status is None]
    if left:
        check_run(own_model(left[0].folder, left[0].config), online=True).require()
    jobs = min(jobs or side_by_side(config), max(1, len(left)))
    done = f", {len(cells) - len(left)} of them finished before" if len(left) < len(cells) else ""
    console.print(
        f"[bold]{escape(config.name)}[/]  {len(cells)} seeds{done}, {jobs} at a time; what each says is in its {LOG}",
        highlight=False,
        soft_wrap=True,
    )
    with _Progress(cells, config.updates, console) as progress:
        complete = run_cells(left, jobs, progress.look, progress.stopping)
    _show(cells, console)
    if not complete:
        console.print("[yellow]stopped; everything is saved[/]\nto continue: the same command with --resume")
    return not any(cell.failed for cell in cells)


def _cell(config: TrainConfig, seed: int, folder: Path | None, follow_links: bool) -> Cell:
    place = Path("runs") / f"{config.name}-seed{seed}" if folder is None else folder / f"seed{seed}"
    return Cell(f"seed {seed}", config.model_copy(update={"seed": seed}), place, follow_links=follow_links)


class _Progress(Bars):
    """One bar for each seed on a terminal, elsewhere a line now and then; and a line for each seed that has ended."""

    def __init__(self, cells: Sequence[Cell], updates: int, console: Console) -> None:
        super().__init__(console, self._state)
        self._cells = [cell for cell in cells if cell.status is None]
        self._updates = updates
        self._tasks = {cell.name: self.add(cell.name, total=updates, start=False) for cell in self._cells}
        self._ended: set[str] = set()
        self._begun: set[str] = set()

    def look(self) -> None:
        for cell in self._cells:
            if cell.process is not None and cell.name not in self._begun:
                self._begun.add(cell.name)
                self._bars.start_task(self._tasks[cell.name])
            record = last_record(cell.folder / "metrics.jsonl")
            self.update(self._tasks[cell.name], completed=record.get("update", 0))
            if cell.status is not None and cell.name not in self._ended:
                self._ended.add(cell.name)
                self.print(f"{cell.name}: {_outcome(cell, self._updates)}")

    def stopping(self) -> None:
        for cell in self._cells:
            if cell.running:
                self.update(self._tasks[cell.name], description=f"{cell.name}, stopping")

    def _state(self) -> str:
        running = [cell for cell in self._cells if cell.running]
        return "  " + ", ".join(
            f"{cell.name}: update {last_record(cell.folder / 'metrics.jsonl').get('update', 0)} of {self._updates}"
            for cell in running
        )


def _outcome(cell: Cell, updates: int) -> str:
    if cell.failed:
        return escape(f"failed with status {cell.status}: {cell.last_log_line()} ({cell.folder / LOG})")
    if finished(cell.folder, updates):
        return "finished"
    return "stopped" if cell.process is not None or begun(cell.folder) else "not begun"


def _show(cells: Sequence[Cell], console: Console) -> None:
    """The held-out success of every seed before and after its training, and over the finished ones."""
    table = Table("seed", "before", "after", "95 % interval", "run", title="held-out success (test split)")
    pairs = []
    for cell in cells:
        tested = evaluated(read_metrics(cell.folder), "test") if begun(cell.folder) else []
        row = [f"{record['test/success']:.1%}" for record in (*tested[:1], *tested[1:][-1:])]
        if len(tested) > 1:
            last = tested[-1]
            row.append(f"{last['test/low']:.1%} to {last['test/high']:.1%}")
            pairs.append((tested[0]["test/success"], last["test/success"]))
        else:
            row = [*row, *[""] * (2 - len(row)), _outcome(cell, cell.config.updates).partition(":")[0]]
        table.add_row(str(cell.config.seed), *row, escape(str(cell.folder)))
    if len(pairs) > 1:
        table.add_section()
        shown = [f"{mean(values):.1%} ± {stdev(values):.1%}" for values in zip(*pairs, strict=True)]
        table.add_row("mean ± sd", *shown, "", f"{len(pairs)} seeds")
    console.print(table)
