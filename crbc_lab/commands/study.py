"""`crbc study credit-accuracy` and `crbc study dynamics`: claims that are tested where the truth is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from crbc_lab.studies import credit_accuracy, credit_figure, credit_tables
from crbc_lab.studies import dynamics as noise
from crbc_lab.studies.estimators import standard
from crbc_lab.studies.worlds import WORLDS, World
from crbc_rl.errors import ConfigError, nearest

ALL = "all"


def study_dynamics(out: Path, quick: bool, seed: int, console: Console) -> None:
    """Print the figures, and write them to OUT/dynamics.json."""
    lakes = replace(noise.QUICK if quick else noise.Settings(), seed=seed)
    played = noise.run(lakes)
    noise.show(played, lakes, console)
    noise.write_json(played, lakes, out / "dynamics.json")
    console.print(f"wrote {escape(str(out / 'dynamics'))}.json", soft_wrap=True, highlight=False)


def study_accuracy(
    worlds: Sequence[str],
    sizes: Sequence[int],
    draws: Literal["choose", "report"],
    jobs: int,
    out: Path,
    quick: bool,
    seed: int,
    console: Console,
) -> None:
    """Print the tables of each world as it is done, and write OUT/credit_accuracy.json and .png.

    `worlds` are names, or "all". Raises `ConfigError` for an unknown name and for a group size below 2.
    """
    chosen = _worlds(worlds)
    settings = replace(credit_accuracy.QUICK if quick else credit_accuracy.Settings(), draws=draws, seed=seed)
    if sizes:
        settings = replace(settings, group_sizes=tuple(dict.fromkeys(sizes)))
    for size in settings.group_sizes:
        if size < 2:
            raise ConfigError(f"--group-size {size}: a group has at least 2 rollouts; give 2 or more")
    out.mkdir(parents=True, exist_ok=True)
    credit_tables.explain(console)
    cells: list[credit_accuracy.Cell] = []
    for world in chosen:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task(world.name, total=None)

            def tell(done: int, total: int, progress: Progress = progress, bar: TaskID = bar) -> None:
                progress.update(bar, completed=done, total=total)

            found = credit_accuracy.judge(world, standard(), settings, tell, jobs)
        credit_tables.show(found, world, settings, console)
        cells += found
    credit_tables.show_plus(cells, settings, console)
    stem = out / "credit_accuracy"
    credit_tables.write_json(cells, chosen, settings, stem.with_suffix(".json"))
    credit_figure.draw(cells, settings, stem.with_suffix(".png"))
    console.print(f"wrote {escape(str(stem))}.json and .png", soft_wrap=True, highlight=False)


def _worlds(names: Sequence[str]) -> list[World]:
    if ALL in names:
        return list(WORLDS.values())
    for name in names:
        if name not in WORLDS:
            raise ConfigError(f"--world {name}: there is no such world{nearest(name, [*WORLDS, ALL])}")
    return [WORLDS[name] for name in dict.fromkeys(names or ("sokoban",))]
