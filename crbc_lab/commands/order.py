"""What `crbc eval` is to play, and the mistakes in it, which are told before torch is imported."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from crbc_envs.vector.contract import attribute
from crbc_lab.commands.tasks import ChosenTasks
from crbc_lab.commands.warmstart_config import read_recipe
from crbc_rl.config import TrainConfig, load_config, parse_config, set_value
from crbc_rl.errors import ConfigError
from crbc_rl.names import Found, find
from crbc_rl.rollout.panel import EvalPanel, Name, choose
from crbc_rl.runs.folder import Run

HELD_OUT = ("validation", "test")
SUFFIX = ".json"
"""Of the file that is written."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be evaluated: so many `episodes` of `split`, by default as many as the config says, on its panel or
    `panel`; or `tasks`. `settings` replace values of the config. `out` and `resume` are the JSON file's, beside which
    so many `transcripts` are kept."""

    split: str | None = None
    episodes: int | None = None
    panel: Name | None = None
    tasks: ChosenTasks | None = None
    settings: Sequence[str] = ()
    max_tokens: int | None = None
    out: Path | None = None
    resume: bool = False
    transcripts: int = 16

    def __post_init__(self) -> None:
        if self.tasks is not None and (self.episodes, self.panel) != (None, None):
            raise ConfigError("--tasks names the tasks: leave --episodes and --panel out")
        if self.tasks is None and self.split not in (None, *HELD_OUT):
            raise ConfigError(f"--split {self.split}: held-out are {' and '.join(HELD_OUT)}; others go with --tasks")
        told = None if self.tasks is None else self.tasks.split
        if None not in (self.split, told) and self.split != told:
            raise ConfigError(f"--split {self.split}: the manifest is of {told}; leave --split out")
        if self.out is not None:
            require_place(self.out, self.resume)
        elif self.resume:
            raise ConfigError("--resume continues what --out FILE.json has begun: name that file")

    def read(self, given: Path, policy: object) -> tuple[Found, TrainConfig]:
        """What has that path or name, and the config that is played: with `settings`, and this panel.

        Raises `ConfigError` where there is none such, and where it has no `policy` "best" or "last".
        """
        found = find(given, "run", "config", "model")
        if found.kind != "run" and policy in ("best", "last"):
            raise ConfigError(f"--policy {policy}: {given} is no run folder; leave the option out, or name a run")
        config = self._set(found)
        if self.panel is not None:
            config = config.model_copy(update={"eval": config.eval.model_copy(update={"panel": self.panel})})
        return found, config

    def _set(self, found: Found) -> TrainConfig:
        if found.kind == "config":
            return load_config(found.path, self.settings)
        config = Run.open(found.path).config if found.kind == "run" else read_recipe(found.path)
        data = config.model_dump()
        for setting in self.settings:
            if setting.startswith("model="):
                raise ConfigError(f"--set {setting}: the policy of {found.path} is evaluated")
            set_value(data, setting)
        return parse_config(data, f"{found.path} with --set") if self.settings else config

    @property
    def played_split(self) -> str:
        """The given split, that of a manifest, or the test split."""
        return self.split or (self.tasks.split if self.tasks is not None else None) or "test"

    def count(self, config: TrainConfig) -> int:
        """The number of tasks that are played."""
        return len(self.tasks.tasks) if self.tasks is not None else self.episodes or config.eval.test_episodes

    def chosen(self, config: TrainConfig) -> tuple[EvalPanel, dict[str, str]]:
        """What is played, and where a file keeps it its digest, which may cost as much as to begin all tasks, and the
        tagger of the environment's reward, if it has one."""
        split = self.played_split
        with closing(config.member(split)) as env:
            if self.tasks is not None:
                chosen = self.tasks.panel(env.panel, split)
            else:
                chosen = choose(env.panel, split, self.count(config), config.eval.panel)
            told = {"digest": chosen.digest(env.panel)} if self.out is not None else {}
            return chosen, told | ({"reward_tagger": found} if (found := attribute(env, "reward_tagger", "")) else {})


def require_place(out: Path, resume: bool) -> None:
    """Raise `ConfigError` where `out` cannot be written, and without `resume` where it is there already."""
    if out.suffix != SUFFIX:
        raise ConfigError(f"--out {out}: name a file that ends with {SUFFIX}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}: make it first")
    if out.exists() and not resume:
        raise ConfigError(f"--out {out} is there already: choose another name, or delete it")
