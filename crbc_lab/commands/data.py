"""`crbc data` installs or checks official data; `crbc bench` compares engines with the originals on such data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import gymnasium
from gymnasium.envs.registration import EnvSpec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.alfworld.engine.conformance import COMPARED, conform_all, published
from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import Dataset, install, read_manifest, verify
from crbc_envs.storage.outcomes import Outcome
from crbc_envs.vector.members import creator, declared
from crbc_lab.commands.console import print_line, progress_bar
from crbc_lab.commands.splits import arguments, environment_errors, typed_id
from crbc_rl.config.revisions import digest_of
from crbc_rl.errors import ConfigError, nearest


def datasets() -> dict[str, Dataset]:
    """The datasets that the suite's environments declare, by name."""
    own = (spec for spec in gymnasium.registry.values() if spec.id.startswith("CRBC-"))
    declarations = (declared(creator(spec), "dataset") for spec in own)
    return {dataset.name: dataset for dataset in declarations if dataset is not None}


def install_or_verify(name: str, sources: Sequence[Path], console: Console) -> None:
    """Install `sources`, or without sources compare every installed file with its checksum. Prints the result.

    Raises `ConfigError` for an unknown name, and `DataError` as `install` and `verify` do.
    """
    known = datasets()
    if name not in known:
        raise ConfigError(f"there is no dataset {name!r}{nearest(name, known)}")
    dataset = known[name]
    with progress_bar(console, f"{'installing' if sources else 'checking'} {name}") as progress:
        result = install(dataset, sources, progress) if sources else verify(dataset, progress)
    digest = digest_of(read_manifest(dataset.folder))
    print_line(console, f"{result}\n{dataset.folder}\nenv.revision: {digest}")


def generate_shop(folder: Path, num_products: int, seed: int, console: Console) -> None:
    """Make a generated shop in `folder`. Raises `ConfigError` and `DataError` as `make_shop` does, and `OSError`."""
    from crbc_envs.webshop.shop.stored import make_shop

    begun = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        try:
            size = make_shop(folder, num_products, seed, tell)
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise ConfigError(f"--products {num_products}: {error}") from error
    took = f"{num_products:,} products, {size / 1e6:,.0f} MB, {time.monotonic() - begun:.0f} s"
    use = f'gymnasium.make("CRBC-WebShop-v0", data_dir={str(folder)!r})'
    print_line(console, f"{took}\n{folder}\n{use}")


def compare_engines(
    env: str | None,
    games: Path | None,
    everything: bool,
    settings: Sequence[str],
    numbers: tuple[int | None, int, int],
    out: Path,
    console: Console,
) -> bool:
    """`crbc bench conformance`: of an environment's tasks, or of ALFWorld's games. Returns whether all agree.

    `numbers` are games, steps and seed. Raises `ConfigError` unless it is one of the two.
    """
    many = games is not None or everything
    if many == (env is not None) or (many and settings):
        ways = "crbc bench conformance CRBC-Sokoban-v0, or crbc bench conformance --games DIR, or --all"
        raise ConfigError(f"crbc bench conformance takes an environment or a folder of games: {ways}")
    if env is not None:
        return conformance_of(env, settings, *numbers, console)
    return conformance(games, everything, *numbers, out, console)


def conformance(
    games: Path | None, everything: bool, count: int | None, steps: int, seed: int, out: Path, console: Console
) -> bool:
    """Play games in ALFWorld's exact engine and in TextWorld, print the comparison, and return whether all agree.

    `everything`: the games of the folder, by default the installed ones, in both wordings, and generated ones.
    """
    from crbc_envs.alfworld import conformance as alfworld

    where = games or datasets()["alfworld"].folder
    listed = (alfworld.everything(where) if everything else published(where))[:count]
    return _compare(conform_all(listed, steps, seed, out), len(listed), "exact engine and TextWorld", COMPARED, console)


def conformance_of(
    env_id: str, settings: Sequence[str], count: int | None, steps: int, seed: int, console: Console
) -> bool:
    """Play an environment's tasks in its own engine and in the original. Prints the result, returns whether all agree.

    `settings` are the environment's arguments, each as key=value. Raises `ConfigError` for an environment that is not
    registered, cannot be made, or names no original, and `RequirementError` where that is not installed.
    """
    name, kwargs = typed_id(env_id), arguments(settings, "engine")
    with environment_errors(f"{env_id}: it cannot be made", name):
        env = gymnasium.make(name, disable_env_checker=True, **kwargs)
    original = declared(env.unwrapped, "conformance")
    if original is None:
        known = [spec.id for spec in gymnasium.registry.values() if _names_original(spec)]
        raise ConfigError(f"{env_id} names no original to compare with; these do: {', '.join(sorted(known))}")
    assert env.spec is not None
    given = {key: value for key, value in env.spec.kwargs.items() if key != "engine"}
    tasks = original.tasks if count is None else count
    outcomes = original.play(tasks, steps, seed, **given)
    return _compare(outcomes, tasks, f"{name} and {original.original}", original.compared, console)


def _names_original(spec: EnvSpec) -> bool:
    return spec.id.startswith("CRBC-") and bool(creator(spec).conformance)


def _compare(played: Iterable[Outcome], total: int, title: str, compared: Sequence[str], console: Console) -> bool:
    """Print the outcomes as they come in, and return whether there was one and none differs."""
    outcomes: list[Outcome] = []
    with progress_bar(console, "games") as progress:
        for outcome in played:
            outcomes.append(outcome)
            progress(len(outcomes), total)
    different = [outcome for outcome in outcomes if outcome.difference]
    for outcome in different:
        console.print(
            f"[red]{escape(outcome.game)}[/] seed {outcome.seed}, {escape(str(outcome.difference))}", soft_wrap=True
        )
    table = Table("family", "games", "steps", "won", "differences", title=escape(title))
    for family in sorted({outcome.family for outcome in outcomes}):
        _row(table, escape(family), [outcome for outcome in outcomes if outcome.family == family])
    _row(table, "all", outcomes)
    console.print(table)
    verbs = sum((Counter(outcome.verbs) for outcome in outcomes), Counter())
    console.print(
        "commands: " + escape(", ".join(f"{verb} {times:,}" for verb, times in verbs.most_common())), soft_wrap=True
    )
    console.print(f"compared at every step: {escape(', '.join(compared))}", soft_wrap=True)
    return bool(outcomes) and not different


def _row(table: Table, name: str, outcomes: list[Outcome]) -> None:
    counts = (
        len(outcomes),
        sum(outcome.steps for outcome in outcomes),
        sum(outcome.won for outcome in outcomes),
        sum(bool(outcome.difference) for outcome in outcomes),
    )
    table.add_row(name, *(f"{count:,}" for count in counts))
