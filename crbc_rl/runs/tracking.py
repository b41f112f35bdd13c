"""A run in the tracker that a team already uses: Weights & Biases.

RUN/metrics.jsonl stays the truth, and a tracker gets what is there. A tracker that fails therefore loses nothing: a
warning says so, the run goes on without it, and a later --resume sends what is missing.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from crbc_envs.errors import version
from crbc_envs.storage.files import read_json, replace_file
from crbc_rl.errors import ConfigError
from crbc_rl.runs.metric_table import scalars_of
from crbc_rl.runs.metric_writers import Board
from crbc_rl.runs.metrics import read_metrics

log = logging.getLogger(__name__)

FILE = "tracking.json"
"""The file of a run with its id in the tracker, and the last update that it got."""
PACKAGE = "wandb"
"""The tracker's package, and what `FILE` names its last update."""
PROJECT = "crbc"
"""The project of all runs, where WANDB_PROJECT names no other."""
FAULTS = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What a tracker raises, besides its own errors, where its disk or its service fails."""


class Tracker(Board):
    """Sends a run to the tracker, in the `group` of runs with the same config; `settings` are shown beside it.

    It is opened when there is something to send, and first gets what it lacks of RUN/metrics.jsonl. Each update is sent
    once, also by a run that resumes: its number is written down before it is sent. What a killed process had not sent
    yet, at most that of a second, stays away.
    """

    def __init__(self, folder: Path, group: str, settings: Mapping[str, Any]) -> None:
        self._folder, self._group, self._settings = folder, group, settings
        self._board: Board | None = None
        self._state: dict[str, Any] | None = None
        self._failed = False

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Send the scalars of an update, by tag, which metrics.jsonl has already."""
        if not self._failed:
            with self._as_warning():
                self._catch_up()
                self._send(update, scalars)

    def close(self) -> None:
        """Send what is missing, and wait until the tracker has everything."""
        if not self._failed:
            with self._as_warning():
                self._catch_up()
        if self._board is not None:
            with self._as_warning():
                self._board.close()

    def _catch_up(self) -> None:
        if self._state is None:
            self._state = read_state(self._folder)
            for record in read_metrics(self._folder):
                self._send(record["update"], scalars_of(record))

    def _send(self, update: int, scalars: Mapping[str, float]) -> None:
        assert self._state is not None
        if update <= self._state.get(PACKAGE, -1):
            return
        if self._board is None:
            name = self._state.setdefault("id", token_hex(4))
            self._board = Wandb(self._folder, name, self._group, self._settings)
        self._state[PACKAGE] = update
        replace_file(self._folder / FILE, json.dumps(self._state).encode() + b"\n")
        self._board.write(update, {tag: value for tag, value in scalars.items() if math.isfinite(value)})

    @contextmanager
    def _as_warning(self) -> Iterator[None]:
        """Turns the first fault of the tracker into a warning, after which nothing more is sent."""
        try:
            yield
        except FAULTS + _own_faults() as error:
            if not self._failed:
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                after = "metrics.jsonl has every figure, and --resume sends those that are missing"
                log.warning("%s failed, and the run goes on without it: %s (%s)", PACKAGE, reason, after)
            self._failed = True


def read_state(folder: Path) -> dict[str, Any]:
    """What RUN/tracking.json says; nothing where it is missing or damaged. Then the run is a new one to the tracker."""
    try:
        kept = read_json(folder / FILE)
        named = isinstance(kept, dict) and re.fullmatch(r"[0-9a-f]{8}", kept["id"])
        if named and all(type(value) is int for name, value in kept.items() if name != "id"):
            return kept
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError):
        pass
    log.warning("%s is damaged: the tracker gets the run as a new one", folder / FILE)
    return {}


def _own_faults() -> tuple[type[Exception], ...]:
    """The tracker's own errors, which derive from `Exception` alone."""
    if not version(PACKAGE):
        return ()
    import wandb

    return (wandb.Error,)


class Wandb(Board):
    """Weights & Biases; its files are in RUN/wandb. It gets metrics, the config and the machine's load: no code, no
    output and no list of packages."""

    def __init__(self, folder: Path, name: str, group: str, settings: Mapping[str, Any]) -> None:
        import wandb

        if (folder / "wandb").is_symlink():
            raise ConfigError(f"{folder / 'wandb'} is a link, and its files would be written elsewhere: remove it")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=name,
            name=folder.name,
            group=group,
            dir=folder,
            config=dict(settings),
            resume="allow",
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                save_code=False,
                x_disable_meta=True,
                x_save_requirements=False,
                x_transaction_log_flush_interval=1.0,
            ),
        )

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=update, commit=True)

    def close(self) -> None:
        self._run.finish()
