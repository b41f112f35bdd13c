"""`crbc bench`: compares the suite's engines with the originals, and an environment's splits with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.alfworld.engine.conformance import COMPARED, conform_all, published
from crbc_envs.checking.probe import AnchorEnvError
from crbc_envs.checking.splits import SplitReport, measure_splits
from crbc_envs.storage.outcomes import Outcome
from crbc_envs.vector.members import creator, declared
from crbc_lab.commands.console import print_line, progress_bar
from crbc_lab.commands.data import datasets
from crbc_rl.config.extensions import environment_errors, typed_id
from crbc_rl.config.text import parse_yaml
from crbc_rl.errors import ConfigError


def splits(
    env_id: str, settings: Sequence[str], console: Console, *, train: int, held_out: int, walks: int, seed: int
) -> bool:
    """Print the comparison, and return whether no held-out task is in training and few starts are visited there.

    `settings` are the environment's arguments, each as key=value. Raises `ConfigError` for an id that is not
    registered, and for an environment that has no splits, cannot be made, or has a task that cannot be played.
    """
    name, kwargs = typed_id(env_id), arguments(settings, "split")
    refused = environment_errors(f"{env_id}: its splits cannot be compared", name)
    sizes = {"train_tasks": train, "held_out_tasks": held_out, "walks": walks, "seed": seed}
    try:
        with progress_bar(console, "tasks") as progress, refused:
            report = measure_splits(name, **sizes, progress=progress, **kwargs)
    except AnchorEnvError as error:
        raise ConfigError(f"{env_id}: its splits cannot be compared: {str(error).partition(chr(10))[0]}") from error
    _show(report, console)
    return not report.leaks


def arguments(
    settings: Sequence[str], *taken: str, option: str = "--set", what: str = "an argument of the environment"
) -> dict[str, Any]:
    """The values given as key=value. Raises `ConfigError` for others, and for keys in `taken`."""
    values = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key in ("", *taken):
            but = f", any but {' or '.join(taken)}" if taken else ""
            raise ConfigError(f"{option} {setting}: write {what} as key=value{but}")
        values[key] = parse_yaml(value, f"{option} {setting}: the value is not YAML")
    return values


def _show(report: SplitReport, console: Console) -> None:
    print_line(console, str(report))
    for part in report.held_out:
        alike = [name for name in part.visited if part.different[name] == 1]
        if alike:
            console.print(escape(f"{part.split}: all starts have one {', '.join(alike)}, so its visits tell nothing"))


# ---- engines --------------------------------------------------------------------------------------


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
        ours = (spec for spec in gymnasium.registry.values() if spec.id.startswith("CRBC-"))
        known = [spec.id for spec in ours if creator(spec).conformance]
        raise ConfigError(f"{env_id} names no original to compare with; these do: {', '.join(sorted(known))}")
    assert env.spec is not None
    given = {key: value for key, value in env.spec.kwargs.items() if key != "engine"}
    tasks = original.tasks if count is None else count
    outcomes = original.play(tasks, steps, seed, **given)
    return _compare(outcomes, tasks, f"{name} and {original.original}", original.compared, console)


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
