"""Tasks that somebody names one by one: `--tasks 5,23,28`, game files, or a manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import read_json, shown
from crbc_envs.tasks import TaskPanel
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.panel import CHOSEN, EvalPanel, repeats_of

FORM = 'a manifest is JSON such as {"split": "test", "tasks": [5, 23]}, or what `crbc eval --out FILE.json` wrote'


@dataclass(frozen=True, slots=True)
class ChosenTasks:
    """Tasks by number or by the benchmark's own name. `split` and `digest` are those of a manifest that has them."""

    where: str
    tasks: Sequence[int | str]
    split: str | None = None
    digest: str | None = None

    @classmethod
    def read(cls, text: str) -> ChosenTasks:
        """What `--tasks` says: numbers and names with commas between them, or the file of a manifest."""
        if text.endswith(".json"):
            return cls._manifest(Path(text))
        words = [word.strip() for word in text.split(",")]
        if not all(words) or any(re.fullmatch("-[0-9]+|[0-9]+-[0-9]+", word) for word in words):
            raise ConfigError(f"--tasks {text!r}: write it as 5,23,28, or name a manifest that ends with .json")
        return cls("--tasks", [int(word) if word.isdecimal() and len(word) < 19 else word for word in words])

    @classmethod
    def _manifest(cls, path: Path) -> ChosenTasks:
        where = f"--tasks {path}"
        try:
            data = read_json(path)
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror}; {FORM}") from error
        except ValueError as error:
            raise ConfigError(f"{where}: {error}; {FORM}") from error
        data = data if isinstance(data, dict) else {}
        rows, panel = data.get("rows"), data.get("panel")
        try:
            tasks = data["tasks"] if rows is None else [row["task"] for row in rows]
            digest = panel["digest"] if isinstance(panel, dict) else data.get("digest")
            fits = isinstance(tasks, list) and bool(tasks) and all(type(task) in (int, str) for task in tasks)
        except (KeyError, TypeError):
            fits = False
        split = data.get("split")
        if not fits or not isinstance(split, str | None) or not isinstance(digest, str | None):
            raise ConfigError(f"{where}: it names no tasks; {FORM}")
        return cls(where, tasks, split, digest)

    def panel(self, source: TaskPanel[Any], split: str) -> EvalPanel:
        """The panel of these tasks of `source`, the split `split`. Raises `ConfigError` for a task that is not there,
        and where the digest of a manifest is another one."""
        tasks = tuple(self._number(source, split, task) for task in self.tasks)
        panel = EvalPanel(CHOSEN, split, tasks, repeats_of(tasks))
        if self.digest is not None and (now := panel.digest(source)) != self.digest:
            raise ConfigError(
                f"{self.where}: its tasks have the digest {shown(self.digest)[:20]}, and those of this environment "
                f"{now[:16]}: give it the data and the env.kwargs that the manifest was made with"
            )
        return panel

    def _number(self, source: TaskPanel[Any], split: str, task: int | str) -> int:
        number = task if isinstance(task, int) else source.find(task)
        if number is None:
            raise ConfigError(f"{self.where}: the {split} panel has no task by the name of {shown(task)}")
        if not 0 <= number < len(source):
            raise ConfigError(f"{self.where}: task {number}, and the {split} panel has 0 to {len(source) - 1:,}")
        return number
