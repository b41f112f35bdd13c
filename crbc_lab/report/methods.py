"""Runs that differ in their seed alone, together: the methods that a page compares."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crbc_lab.statistics import Outcomes
from crbc_rl.config import TrainConfig
from crbc_rl.config.read import flat
from crbc_rl.runs.folder import FREE, Run, read_versions
from crbc_rl.runs.lines import OUTCOMES, Record, read_lines
from crbc_rl.runs.metrics import evaluated, read_metrics

SEED = re.compile(r"[-_.]?seed[-_]?\d+$")
UNTOLD = {"seed", "name", *FREE} - {"updates"}
"""What runs of one method may differ in; a run's own copy of its model is told by its digest."""


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """Runs of one config, by seed, and the `records` of each."""

    name: str
    runs: tuple[Run, ...]
    records: tuple[Sequence[Record], ...]

    @property
    def config(self) -> TrainConfig:
        return self.runs[0].config

    @property
    def rollouts(self) -> int:
        """The rollouts of an update."""
        return self.config.rollout.num_groups * self.config.rollout.group_size

    @property
    def updates(self) -> int:
        """The last update of any of its runs."""
        return max(int(records[-1]["update"]) for records in self.records)

    @property
    def minutes(self) -> float:
        """Of a training without its evaluations, the median over runs."""
        timed = [[r.get("seconds/update", 0.0) - r.get("seconds/eval", 0.0) for r in some] for some in self.records]
        return float(np.median([sum(some) for some in timed])) / 60

    def tests(self, at: int) -> dict[int, Record]:
        """The first (`at` 0) or the last (-1) test of each run by its seed: the outcome of every task. Runs whose last
        policy was not tested yet are left out of both."""
        found: dict[int, Record] = {}
        for run, records in zip(self.runs, self.records, strict=True):
            if len(evaluated(records, "test")) > 1:
                lines = [line for line in read_lines(run.folder / OUTCOMES) if line.get("split") == "test"]
                if len(lines) > 1:
                    found[run.config.seed] = lines[at]
        return found


def outcomes(tests: Mapping[int, Record], seeds: Sequence[int]) -> Outcomes:
    """The successes of several seeds on one panel, in its clusters."""
    columns = {name: np.concatenate([tests[seed][name] for seed in seeds]) for name in ("task", "cluster", "success")}
    seed = np.repeat(seeds, [len(tests[seed]["task"]) for seed in seeds])
    return Outcomes.of(seed, columns["task"], columns["cluster"], columns["success"])


def runs_in(place: Path) -> list[Path]:
    """A run folder itself, or those with metrics in a folder, and in folders of seeds there."""
    if (place / "config.yaml").is_file():
        return [place]
    found = sorted(path.parent for depth in ("*", "*/*") for path in place.glob(f"{depth}/config.yaml"))
    return [folder for folder in found if read_metrics(folder)]


def methods_of(folders: Sequence[Path], left_out: list[str]) -> list[Method]:
    """The methods of these runs, in the order of their first ones. A run that repeats another is left out, and said."""
    found: dict[tuple[tuple[str, str], ...], dict[int, Run]] = {}
    for folder in dict.fromkeys(path.resolve() for path in folders):
        run = Run.open(folder)
        same = found.setdefault(tuple(settings(run).items()), {}).setdefault(run.config.seed, run)
        if same is not run:
            left_out.append(f"{folder}: config and seed are those of {same.folder}")
    own = [[seeds[seed] for seed in sorted(seeds)] for seeds in found.values()]
    return [
        Method(name, tuple(runs), tuple(read_metrics(run.folder) for run in runs))
        for name, runs in zip(_names(own), own, strict=True)
    ]


def settings(run: Run) -> dict[str, str]:
    """What a run was made with, by dotted key, but for what tells its seeds apart."""
    told = read_versions(run.folder)
    given = flat(run.config.model_dump(mode="json", exclude={"modules"}))
    known = {"model": f"{told.get('model', run.config.model)} {told.get('revision', '')[:8]}".strip()}
    for key, value in given.items():
        if key not in UNTOLD:
            known[key] = value if isinstance(value, str) else json.dumps(value)
    return known


def difference(methods: Sequence[Method]) -> list[tuple[str, list[str]]]:
    """The settings that are not the same in all methods, and the value in each."""
    each = [settings(method.runs[0]) for method in methods]
    rows = [(key, [one.get(key, "") for one in each]) for key in sorted({key for one in each for key in one})]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _names(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each group of runs: its estimator, its folder or its config's name, the first that tells all apart."""
    configs = [runs[0].config for runs in groups]
    places = [runs[0].folder for runs in groups]
    for names in (
        [config.credit.method for config in configs],
        [SEED.sub("", place.name) or place.parent.name for place in places],
        [config.name for config in configs],
    ):
        if len(set(names)) == len(names):
            return names
    return [str(place.relative_to(place.parents[1])) for place in places]
