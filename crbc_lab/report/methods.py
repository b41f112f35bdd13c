"""Runs that differ in their seed alone, together: the methods that a page compares."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crbc_lab.statistics import Outcomes
from crbc_lab.statistics.outcomes import Floats
from crbc_rl.config.read import flat
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import FREE, Run
from crbc_rl.runs.lines import OUTCOMES, Record, read_lines
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.versions import read_versions

SEED = re.compile(r"[-_.]?seed[-_]?\d+$")
UNTOLD = {"seed", "name", *FREE}
"""What runs of one method may differ in; a run's own copy of its model is told by its digest, and `updates` by itself:
a run that was resumed with more has them not in its config."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A run and its `records`."""

    run: Run
    records: Sequence[Record]

    @property
    def seed(self) -> int:
        return self.run.config.seed

    @property
    def updates(self) -> int:
        """Those that it is to have: of its config, or more where it was resumed with more."""
        return max(self.run.config.updates, self.done)

    @property
    def done(self) -> int:
        return int(self.records[-1]["update"])

    @property
    def tested(self) -> bool:
        """Whether it has ended, and its last policy was tested."""
        return self.done > 0 and [r["update"] for r in evaluated(self.records, "test")][-1:] == [self.done]

    @property
    def rollouts(self) -> Floats:
        """The rollouts that were played up to each update, 0 first, (updates + 1,)."""
        given = self.run.config.rollout
        groups = {int(record["update"]): record.get("groups_played", given.num_groups) for record in self.records}
        played = [groups.get(update, given.num_groups) for update in range(1, self.done + 1)]
        return given.group_size * np.cumsum([0, *played], dtype=np.float64)

    @property
    def minutes(self) -> float:
        """Of its updates, without evaluations."""
        return sum(r.get("seconds/update", 0.0) - r.get("seconds/eval", 0.0) for r in self.records) / 60

    def test(self, at: int) -> Record | None:
        """The outcome of every task in the first (`at` 0) or the last (-1) test; None where there is none of both."""
        lines = [line for line in read_lines(self.run.folder / OUTCOMES) if line.get("split") == "test"]
        return lines[at] if self.tested and len(lines) > 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """Runs of one config, by seed, under a name that no other method has."""

    name: str
    runs: tuple[Trained, ...]

    @property
    def ended(self) -> tuple[Trained, ...]:
        return tuple(one for one in self.runs if one.tested)

    @property
    def drawn(self) -> tuple[Trained, ...]:
        """The runs of curves: those that have ended, or all where none has."""
        return self.ended or self.runs

    @property
    def updates(self) -> str:
        done = sorted({one.done for one in self.runs})
        return f"{done[0]} to {done[-1]}" if len(done) > 1 else str(done[0])

    @property
    def minutes(self) -> float:
        return float(np.median([one.minutes for one in self.drawn]))

    def tests(self, at: int) -> dict[int, Record]:
        """The first or the last test of each run that has ended, by its seed."""
        return {one.seed: line for one in self.ended if (line := one.test(at)) is not None}


def outcomes(tests: Mapping[int, Record], seeds: Sequence[int]) -> Outcomes:
    """The successes of several seeds on one panel, in its clusters. A task that comes twice there counts as two.

    Raises `ConfigError` where these seeds played different tasks."""
    tasks = tests[seeds[0]]["task"]
    for seed in seeds:
        if tests[seed]["task"] != tasks:
            raise ConfigError(f"seeds {seeds[0]} and {seed} were tested on different tasks")
    clusters: list[list[str]] = [tests[seed].get("cluster", list(map(str, tasks))) for seed in seeds]
    success: list[list[bool]] = [tests[seed]["success"] for seed in seeds]
    place = np.tile(np.arange(len(tasks)), len(seeds))
    return Outcomes.of(np.repeat(seeds, len(tasks)), place, np.concatenate(clusters), np.concatenate(success))


def runs_in(place: Path) -> list[Path]:
    """A run folder itself, or those in a folder, and in folders of seeds there; all with metrics."""
    found = [place / "config.yaml"] if (place / "config.yaml").is_file() else []
    found = found or sorted(path for depth in ("*", "*/*") for path in place.glob(f"{depth}/config.yaml"))
    return [path.parent for path in found if read_metrics(path.parent)]


def methods_of(folders: Sequence[Path], left_out: list[str]) -> list[Method]:
    """The methods of these runs, in the order of their first ones. What cannot be read, and a run that repeats another,
    is left out, and said. Raises `ConfigError` where nothing is left."""
    found: dict[str, dict[int, Trained]] = {}
    for folder in dict.fromkeys(path.resolve() for path in folders):
        try:
            one = Trained(Run.open(folder), read_metrics(folder))
        except ConfigError as error:
            left_out.append(str(error))
            continue
        same = found.setdefault(json.dumps(settings(one)), {}).setdefault(one.seed, one)
        if same is not one:
            left_out.append(f"{folder}: config and seed are those of {same.run.folder}")
    if not found:
        raise ConfigError(f"no run can be read: {left_out[0]}")
    own = [tuple(seeds[seed] for seed in sorted(seeds)) for seeds in found.values()]
    return [Method(name, runs) for name, runs in zip(_names(own), own, strict=True)]


def settings(one: Trained) -> dict[str, str]:
    """What a run was made with, by dotted key, but for what tells its seeds apart."""
    told = read_versions(one.run.folder)
    known = {"model": f"{told.get('model', one.run.config.model)} {told.get('revision', '')[:8]}".strip()}
    for key, value in flat(one.run.config.model_dump(mode="json", exclude={"modules"})).items():
        if key not in UNTOLD:
            known[key] = value if isinstance(value, str) else json.dumps(value)
    modules = {f"modules.{name}": module.sha256[:8] for name, module in one.run.config.modules.items()}
    return {**known, **modules, "updates": str(one.updates)}


def difference(methods: Sequence[Method]) -> list[tuple[str, list[str]]]:
    """The settings that are not the same in all methods, and the value in each."""
    each = [settings(method.runs[0]) for method in methods]
    rows = [(key, [one.get(key, "") for one in each]) for key in sorted({key for one in each for key in one})]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _names(groups: Sequence[Sequence[Trained]]) -> list[str]:
    """A name for each group of runs: its estimator, its folder or its config's name, the first that tells all apart.
    Where none does, its folder with what is above it, as far as needed."""
    configs = [runs[0].run.config for runs in groups]
    places = [runs[0].run.folder for runs in groups]
    tries = [
        [config.credit.method for config in configs],
        [SEED.sub("", place.name) or place.parent.name for place in places],
        [config.name for config in configs],
    ]
    longest = max(len(place.parts) for place in places)
    tries += [["/".join(place.parts[-parts:]) for place in places] for parts in range(2, longest + 1)]
    return next(names for names in tries if len(set(names)) == len(names))
