"""A run folder: its config, versions, metrics, checkpoints and recorded rollouts.

config.yaml      the config with all defaults            metrics.jsonl   one record per update
versions.json    packages, Python, platform              groups.jsonl    one group per update, for the report
checkpoints/     the newest, for --resume                best/           the best on validation
tensorboard/     the same metrics as metrics.jsonl       report.html     written by `crbc report`
rollouts/        every rollout of every `record_every`-th update, for `crbc play --replay`
"""

from __future__ import annotations

import json
import math
import os
import platform
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from anchors import ANCHOR_VERSION, RolloutGroup
from crbc_envs.storage.rollouts import RecordedTurn, write_groups
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.config import TrainConfig, parse_config, read_mapping
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.training.checkpoint import publish, published
from crbc_rl.version import __version__

RECORDED = ("torch", "transformers", "tokenizers", "numpy", "scipy", "gymnasium")


class Run:
    """An open run folder."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.folder = folder
        self.config = config
        self.checkpoints = folder / "checkpoints"

    @classmethod
    def start(cls, folder: Path, config: TrainConfig, resume: bool) -> Run:
        """Create a run folder, or with `resume` open an existing one.

        Raises `ConfigError` where the folder holds a run already, or a run with other settings.
        """
        if not (folder / "config.yaml").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")
            temporary = folder / ".config.yaml"
            temporary.write_text(yaml.safe_dump(config.model_dump(), sort_keys=False))
            os.replace(temporary, folder / "config.yaml")
            return cls(folder, config)
        if not resume:
            raise ConfigError(f"{folder} already holds a run: add --resume to continue it, or --run DIR for another")
        before, now = _flat(cls.open(folder).config.model_dump()), _flat(config.model_dump())
        for name in {**before, **now}:
            # These may change in a resumed run: they do not affect what is trained.
            moved = name.startswith("modules.") and name.endswith(".file")
            free = moved or name in ("updates", "save_every", "record_every")
            if not free and before.get(name) != now.get(name):
                raise ConfigError(
                    f"{folder} was started with {name} = {before.get(name)!r}, not {now.get(name)!r}: "
                    "undo the change to resume, or choose another folder with --run DIR"
                )
        return cls(folder, config)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open an existing run. Raises `ConfigError` where there is none."""
        path = folder / "config.yaml"
        if not path.is_file():
            raise ConfigError(
                f"{folder} is no run folder: it has no config.yaml; `crbc train CONFIG --run DIR` makes one"
            )
        return cls(folder, parse_config(read_mapping(path), str(path)))

    def last_checkpoint(self) -> Path | None:
        return next(reversed(published(self.checkpoints)), None)

    def best(self) -> Path | None:
        """The folder of the policy with the highest validation success, a plain transformers checkpoint."""
        return next(reversed(published(self.folder / "best")), None)

    def policy(self, which: str) -> TransformersPolicy:
        """The policy with the highest validation success ("best"), the last one saved ("last") or the initial one
        ("start"). Raises `ConfigError` where it was not saved yet."""
        folder = {"best": self.best(), "last": self.last_checkpoint(), "start": self.config.model}[which]
        if folder is None:
            raise ConfigError(f"{self.folder} has no checkpoint yet: continue it with crbc train CONFIG --resume")
        return load_policy(folder, max_prompt_tokens=self.config.rollout.max_prompt_tokens)

    def keep_best(self, update: int, policy: TransformersPolicy, distributed: Distributed) -> None:
        publish(
            self.folder / "best", update, partial(policy.save, main=distributed.main), keep=1, distributed=distributed
        )

    def keep_group(self, update: int, group: RolloutGroup) -> None:
        """Append one group to groups.jsonl, for the report."""
        with (self.folder / "groups.jsonl").open("a") as file:
            file.write(json.dumps({"update": update, "group": group.to_dict()}) + "\n")

    def keep_rollouts(self, update: int, batch: RolloutBatch, policy: TransformersPolicy) -> None:
        """Write all rollouts of an update to rollouts/UPDATE.parquet, with prompts and replies as text and as ids."""

        def recorded(turn: Turn) -> RecordedTurn:
            return RecordedTurn(
                prompt=policy.decode_prompt(turn),
                reply=turn.text,
                logprob=math.fsum(turn.logprobs),
                prompt_ids=tuple(turn.prompt),
                reply_ids=tuple(turn.response),
            )

        write_groups(
            self.folder / "rollouts" / f"{update:06d}.parquet",
            batch.rollouts,
            env_id=self.config.env.id,
            update=update,
            turns=[recorded(turn) for turn in batch.turns],
        )

    def groups(self) -> dict[int, RolloutGroup]:
        """The groups of groups.jsonl by update; where an update was run twice, the later one."""
        path = self.folder / "groups.jsonl"
        found: dict[int, RolloutGroup] = {}
        for line in path.read_text().splitlines() if path.is_file() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # an incomplete line after a crash
            found[record["update"]] = RolloutGroup.from_dict(record["group"])
        return found


def versions() -> dict[str, str]:
    """Versions of the packages, of Python and of the anchor keys, and the machine type."""
    return {
        "crbc": __version__,
        "anchors": str(ANCHOR_VERSION),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: metadata.version(name) for name in RECORDED},
    }


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
