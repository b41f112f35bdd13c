"""`crbc bench`: comparisons too long for the tests, that a user may want to repeat."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from crbc_envs.alfworld.engine.conformance import Outcome, conform_all, game_folders


def conformance(games: Path, count: int | None, steps: int, seed: int, out: Path, console: Console) -> bool:
    """Walk games in ALFWorld's exact engine and in TextWorld, and print what came of it; whether all were equal."""
    folders = game_folders(games)[:count]
    outcomes: list[Outcome] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("games", total=len(folders))
        for outcome in conform_all(folders, steps, seed, out):
            outcomes.append(outcome)
            progress.update(bar, advance=1)
    different = [outcome for outcome in outcomes if outcome.difference]
    for outcome in different:
        console.print(f"[red]{outcome.game}[/] seed {outcome.seed}, {outcome.difference}", soft_wrap=True)
    table = Table("family", "games", "steps", "won", "differences", title="exact engine and TextWorld")
    for family in sorted({outcome.family for outcome in outcomes}):
        _row(table, family, [outcome for outcome in outcomes if outcome.family == family])
    _row(table, "all", outcomes)
    console.print(table)
    verbs = sum((Counter(outcome.verbs) for outcome in outcomes), Counter())
    console.print("commands: " + ", ".join(f"{verb} {times:,}" for verb, times in verbs.most_common()), soft_wrap=True)
    return not different


def _row(table: Table, name: str, outcomes: list[Outcome]) -> None:
    figures = (
        len(outcomes),
        sum(outcome.steps for outcome in outcomes),
        sum(outcome.won for outcome in outcomes),
        sum(bool(outcome.difference) for outcome in outcomes),
    )
    table.add_row(name, *(f"{figure:,}" for figure in figures))
