"""Writes what is kept of a finished training, from its run folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anchors import EmpiricalProcess
from anchors.coverage import coverage_statistics
from crbc_envs.storage.files import replace_file
from crbc_envs.storage.rollouts import read_groups
from crbc_lab.studies.comparison.kept import place_of
from crbc_lab.studies.comparison.trainings import EARLY, Training
from crbc_rl.config.sections import TrainConfig
from crbc_rl.credit.metrics import DEPTHS
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run, finished
from crbc_rl.runs.lines import OUTCOMES, Record, read_lines
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.versions import read_versions

FORMAT = 1
CURVE: tuple[str, ...] = ("success", "reward", "score", "invalid", "length", "entropy", "mixed_groups", "gate_open")
CURVE += tuple(f"{name}/{depth}" for name in ("coverage", "full_access") for depth in ("0", "1", "3", "full"))
"""Metrics of training that are kept of every update, where they were measured."""
VALIDATED = ("success", "reward_by_step")
DIGITS = 5
DIGEST = 8
"""Hexadecimal digits that are kept of a digest: enough to tell the tasks of a panel apart."""


def keep(training: Training, run: Path, results: Path) -> Path | None:
    """Write the file of a finished training from its run folder, and return its path; None where it is not finished.

    Raises `ConfigError` where the folder holds another training."""
    if not finished(run, training.config.updates):
        return None
    if ran(training, Run.open(run).config).digest != training.digest:
        raise ConfigError(
            f"{run} holds a training of other settings, or of a module that has changed since: remove it, and run the "
            "study again"
        )
    records = read_metrics(run)
    tests, checked = evaluated(records, "test"), evaluated(records, "validation")
    played = {line["update"]: line for line in read_lines(run / OUTCOMES) if line.get("split") == "test"}
    if not {0, training.config.updates} <= played.keys():
        raise ConfigError(f"{run} has no outcomes of both its tests: remove the folder, and run the study again")
    before, outcomes = played[0], played[training.config.updates]
    updates = [record for record in records if record["update"] > 0]
    kept = {
        "format": FORMAT,
        "digest": training.digest,
        "seed": training.seed,
        "manifest": _manifest(training, run, updates),
        "curve": {n: _rounded(one.get(n) for one in updates) for n in CURVE if any(n in one for one in updates)},
        "validation": {
            "update": [record["update"] for record in checked],
            **{name: _rounded(record[f"validation/{name}"] for record in checked) for name in VALIDATED},
        },
        "start": _test(tests[0]),
        "end": _test(tests[-1]),
        "coverage": _coverage(run / "rollouts" / f"{EARLY:06d}.parquet"),
        "panel": _keep_panel(outcomes, results / training.scale / training.env),
        "success_before": "".join(str(int(each)) for each in before["success"]),
        "success": "".join(str(int(each)) for each in outcomes["success"]),
        "score": None if outcomes["score"] == outcomes["success"] else _rounded(outcomes["score"]),
    }
    path = place_of(training, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(kept, indent=1).encode() + b"\n")
    return path


def ran(training: Training, config: TrainConfig) -> Training:
    """The training of a run's `config`. What the run has found by itself counts as absent: a limit of replies by its
    model, and the commit of a model on the hub."""
    rollout, told = config.rollout, training.config
    asked = {"base": config.base or told.base, "revision": told.revision and config.revision}
    if not told.rollout.limit_named:
        rollout = rollout.model_copy(update={"max_new_tokens": told.rollout.max_new_tokens})
    return replace(training, config=config.model_copy(update={"rollout": rollout, **asked}))


def _keep_panel(outcomes: Record, folder: Path) -> str:
    """Write which tasks were tested, once for all trainings of a setting, and return the name of that panel."""
    panel = {
        "task": outcomes["task"],
        "kind": outcomes["kind"],
        "content": [digest[:DIGEST] for digest in outcomes["content"]],
        "cluster": [hashlib.sha256(name.encode()).hexdigest()[:DIGEST] for name in outcomes["cluster"]],
    }
    text = json.dumps(panel).encode() + b"\n"
    name = hashlib.sha256(text).hexdigest()[:8]
    path = folder / f"panel-{name}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    return name


def _coverage(recorded: Path) -> dict[str, Any]:
    """Evidence coverage of recorded rollouts: `share` has a row for each of `depths`, with the share of the eligible
    visits that 0, 1, ... G rollouts reach; `paired` has the share by coverage at the first depth and at the last."""
    if not recorded.is_file():
        return {}
    statistics = coverage_statistics(EmpiricalProcess.from_groups(read_groups(recorded)), tuple(DEPTHS.values()))
    if not statistics.eligible:
        return {}
    paired = statistics.paired / statistics.eligible
    return {
        "depths": list(DEPTHS),
        "share": [_rounded(row) for row in statistics.distribution.tolist()],
        "paired": [_rounded(row) for row in paired.tolist()],
        "expanded": round(float(statistics.expanded[-1]), DIGITS),
        "eligible": statistics.eligible,
        "visits": statistics.visits,
    }


def _manifest(training: Training, run: Path, updates: list[dict[str, Any]]) -> dict[str, Any]:
    """How a training was made: versions, machine, model, time, and its config without the paths of this machine."""
    spent = {name: sum(record.get(f"seconds/{name}", 0.0) for record in updates) / 60 for name in ("update", "eval")}
    config = training.config.model_dump(mode="json", exclude={"modules", "tracking"}, exclude_defaults=True)
    return {
        "commit": "",  # of a run that was begun before crbc wrote it down
        **read_versions(run),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "minutes": {"training": round(spent["update"] - spent["eval"], 2), "evaluation": round(spent["eval"], 2)},
        "seconds": _phases(updates),
        "config": {**config, "model": Path(training.config.model).name},
    }


def _phases(updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of a phase in an update, the median over the updates."""
    names = {name for record in updates for name in record if name.startswith("seconds/")}
    return {
        name.removeprefix("seconds/"): round(float(np.median([record.get(name, 0.0) for record in updates])), DIGITS)
        for name in sorted(names)
    }


def _test(record: Mapping[str, float]) -> dict[str, float]:
    return {
        name.removeprefix("test/"): round(value, DIGITS) for name, value in record.items() if name.startswith("test/")
    }


def _rounded(values: Any) -> list[Any]:
    return [None if value is None else round(value, DIGITS) for value in values]


def _processor() -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8", errors="replace").splitlines() if cpu.is_file() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor()
