"""`crbc study anchors`: what each kind of anchor of an environment merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.errors import DataError
from crbc_lab.commands.splits import arguments, cause, typed_id
from crbc_lab.studies import anchor_kinds
from crbc_rl.errors import ConfigError


def study_anchors(
    env_id: str | None, settings: Sequence[str], out: Path, quick: bool, seed: int, console: Console
) -> None:
    """Print the figures, and write them to OUT/anchors-ENV_ID.json.

    `settings` are the environment's arguments, each as key=value. Raises `ConfigError` for an id that is not
    registered, and for an environment that has one kind of anchor, has no expert or cannot be made.
    """
    if env_id is None:
        raise ConfigError("crbc study anchors takes an environment, such as crbc study anchors CRBC-ALFWorld-v0")
    name = typed_id(env_id)
    kwargs = arguments(settings, "anchor", "split")
    sizes = replace(anchor_kinds.QUICK if quick else anchor_kinds.Settings(), seed=seed)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("groups", total=None)
        try:
            cells = anchor_kinds.run(
                name, sizes, lambda done, total: progress.update(bar, completed=done, total=total), **kwargs
            )
        except DataError:
            raise
        except (TypeError, ValueError, gymnasium.error.Error) as error:
            raise ConfigError(f"{env_id}: its anchors cannot be compared: {cause(error, name)}") from error
    anchor_kinds.show(cells, name, sizes, console)
    path = out / f"anchors-{name.replace('/', '-')}.json"
    anchor_kinds.write_json(cells, name, {**kwargs}, sizes, path)
    console.print(f"wrote {escape(str(path))}", soft_wrap=True, highlight=False)
