"""`crbc data` installs or checks official data; `crbc bench` compares engines with the originals on such data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import gymnasium
from gymnasium.envs.registration import load_env_creator
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.alfworld.engine.conformance import Outcome, conform_all, game_folders
from crbc_envs.storage.datasets import Dataset, install, verify
from crbc_rl.errors import ConfigError, nearest


def datasets() -> dict[str, Dataset]:
    """The datasets that the suite's environments declare, by name."""
    found: dict[str, Dataset] = {}
    for spec in gymnasium.registry.values():
        if spec.id.startswith("CRBC-"):
            place = load_env_creator(spec.entry_point).dataset  # type: ignore[arg-type, attr-defined]
            module, _, attribute = place.partition(":")
            if module:
                dataset = getattr(import_module(module), attribute)
                found[dataset.name] = dataset
    return found


def install_or_verify(name: str, sources: Sequence[Path], console: Console) -> None:
    """Install `sources`, or without sources compare every installed file with its checksum. Prints the result.

    Raises `ConfigError` for an unknown name, and `DataError` as `install` and `verify` do.
    """
    known = datasets()
    if name not in known:
        raise ConfigError(f"there is no dataset {name!r}{nearest(name, known)}")
    dataset = known[name]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"{'installing' if sources else 'checking'} {name}", total=None)

        def tell(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        found = install(dataset, sources, tell) if sources else verify(dataset, tell)
    console.print(escape(f"{found}\n{dataset.folder}"), soft_wrap=True, highlight=False)


def conformance(games: Path, count: int | None, steps: int, seed: int, out: Path, console: Console) -> bool:
    """Play games in ALFWorld's exact engine and in TextWorld, print the comparison, and return whether all agree."""
    folders = game_folders(games)[:count]
    outcomes: list[Outcome] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("games", total=len(folders))
        for outcome in conform_all(folders, steps, seed, out):
            outcomes.append(outcome)
            progress.update(bar, advance=1)
    different = [outcome for outcome in outcomes if outcome.difference]
    for outcome in different:
        console.print(
            f"[red]{escape(outcome.game)}[/] seed {outcome.seed}, {escape(str(outcome.difference))}", soft_wrap=True
        )
    table = Table("family", "games", "steps", "won", "differences", title="exact engine and TextWorld")
    for family in sorted({outcome.family for outcome in outcomes}):
        _row(table, escape(family), [outcome for outcome in outcomes if outcome.family == family])
    _row(table, "all", outcomes)
    console.print(table)
    verbs = sum((Counter(outcome.verbs) for outcome in outcomes), Counter())
    console.print(
        "commands: " + escape(", ".join(f"{verb} {times:,}" for verb, times in verbs.most_common())), soft_wrap=True
    )
    return not different


def _row(table: Table, name: str, outcomes: list[Outcome]) -> None:
    figures = (
        len(outcomes),
        sum(outcome.steps for outcome in outcomes),
        sum(outcome.won for outcome in outcomes),
        sum(bool(outcome.difference) for outcome in outcomes),
    )
    table.add_row(name, *(f"{figure:,}" for figure in figures))
