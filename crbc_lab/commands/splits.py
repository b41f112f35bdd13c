"""`crbc bench splits`: what of an environment's held-out splits is also in its training split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.checking.splits import SplitReport, measure_splits
from crbc_envs.errors import DataError, RequirementError
from crbc_lab.commands.console import print_line, progress_bar
from crbc_rl.config.extensions import allow, is_extension, registered_id, unknown_id
from crbc_rl.config.text import parse_yaml
from crbc_rl.errors import ConfigError


def splits(
    env_id: str, settings: Sequence[str], console: Console, *, train: int, held_out: int, walks: int, seed: int
) -> bool:
    """Print the comparison, and return whether no held-out task is in training and few starts are visited there.

    `settings` are the environment's arguments, each as key=value. Raises `ConfigError` for an id that is not
    registered, and for an environment that has no splits or cannot be made.
    """
    name, kwargs = typed_id(env_id), arguments(settings, "split")
    refused = environment_errors(f"{env_id}: its splits cannot be compared", name)
    with progress_bar(console, "tasks") as progress, refused:
        report = measure_splits(
            name, train_tasks=train, held_out_tasks=held_out, walks=walks, seed=seed, progress=progress, **kwargs
        )
    _show(report, console)
    return not report.leaks


def typed_id(env_id: str) -> str:
    """The id that Gymnasium knows. Raises `ConfigError` where nothing is registered under it."""
    if is_extension(env_id):
        allow()  # whoever types the name of a module has permitted its import
    name: str = registered_id(env_id, {}, "the environment").rpartition(":")[2]
    if name not in gymnasium.registry:
        raise ConfigError(unknown_id(env_id))
    return name


@contextmanager
def environment_errors(what: str, name: str) -> Iterator[None]:
    """Turns what an environment refuses into a `ConfigError` in one line that begins with `what`."""
    try:
        yield
    except (ConfigError, DataError, RequirementError):
        raise
    except (TypeError, ValueError, ImportError, gymnasium.error.Error) as error:
        reason = str(error).partition("\n")[0].partition(" was raised from the environment creator")[0]
        raise ConfigError(f"{what}: {reason.removeprefix(f'{name}: ')}") from error


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
    print_line(console, report.heading)
    table = Table("", *(part.split for part in report.held_out))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in report.rows():
        table.add_row(*map(escape, row))
    console.print(table)
    for part in report.held_out:
        alike = [name for name in part.visited if part.different[name] == 1]
        if alike:
            console.print(escape(f"{part.split}: all starts have one {', '.join(alike)}, so its visits tell nothing"))
