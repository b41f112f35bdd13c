"""Runs what a study still lacks: finished trainings are not run again, begun ones go on where they were."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from crbc_lab.child_runs import ChildRun, run_children, side_by_side
from crbc_lab.progress import Bars
from crbc_lab.studies.comparison.definition import TUNING_SEED, Scale, Study
from crbc_lab.studies.comparison.keep import keep
from crbc_lab.studies.comparison.kept import best_candidates, find, place_of, validated
from crbc_lab.studies.comparison.plan import check_plan
from crbc_lab.studies.comparison.trainings import Training, trainings, tunings
from crbc_rl.errors import ConfigError
from crbc_rl.runs.lines import last_record
from crbc_rl.runs.own import LOG


@dataclass(slots=True)
class Runner:
    """Runs trainings `jobs` at a time in folders below `runs`, and keeps what is finished in `results`."""

    runs: Path
    results: Path
    jobs: int | None
    console: Console
    gpus: int = 1
    """Processes of one training."""

    def study(self, study: Study, scale: Scale, env: str, seeds: int) -> bool:
        """Run what one setting lacks: first the trainings that choose candidates, then the others.

        Returns whether all of it is finished; it is not where it was stopped or something failed. Raises `ConfigError`
        before anything is run, where a training cannot be run as it is defined.
        """
        tried = [training for _, _, training in tunings(study, scale, env)]
        check_plan(study, scale, self.results, tried)
        if not self._complete(tried, "candidates"):
            return False
        needed = list(trainings(study, scale, env, seeds, best_candidates(study, scale, env, self.results)))
        check_plan(study, scale, self.results, needed)
        return self._complete(needed, "trainings")

    def _complete(self, needed: Sequence[Training], what: str) -> bool:
        distinct = list({training.place: training for training in needed}.values())
        if len({(one.place, one.digest) for one in needed}) > len(distinct):
            raise ConfigError("two trainings of different settings would have one name; `--dry-run` shows the names")
        lacking = [one for one in distinct if find(one, self.results) is None]
        self._require_room(lacking)
        waiting = [one for one in lacking if not self._kept(one)]
        if not waiting:
            return True
        from crbc_lab.plan.check import check_run  # waits for torch, which a finished study does without

        for config in {one.key: one.config for one in waiting}.values():
            check_run(config, gpus=self.gpus).require()
        self._require_gpus(waiting[0].scale)
        children = {str(one.place): (self._child(one, distinct), one) for one in waiting}
        done, count = len(distinct) - len(waiting), len(distinct)

        def state() -> str:
            running = [(name, child.folder / "metrics.jsonl") for name, (child, _) in children.items() if child.running]
            now = [f"{name} at update {int(last_record(path).get('update', 0))}" for name, path in running]
            return f"  {done} of {count} {what} finished; {', '.join(now)}"

        with Bars(self.console, state) as bars:
            bar = bars.add(what, total=count, completed=done)

            def look() -> None:
                nonlocal done
                for name, (child, training) in children.items():
                    if child.status is None or name in ended:
                        continue
                    ended.add(name)
                    if self._ended(name, child, training, bars):
                        done += 1
                bars.update(bar, completed=done)

            ended: set[str] = set()
            jobs = self.jobs or side_by_side(waiting[0].config, self.gpus)
            complete = run_children([child for child, _ in children.values()], jobs, look)
            look()
        return complete and done == count

    def _child(self, training: Training, others: Iterable[Training] = ()) -> ChildRun:
        name, folder = str(training.place).replace(os.sep, "-"), self.runs / training.place
        alike = [self.runs / one.place for one in others if one.seed == training.seed and one is not training]
        return ChildRun(name, training.config, folder, self.gpus, alike)

    def _require_gpus(self, scale: Scale) -> None:
        from torch.cuda import device_count

        if scale == "paper" and (have := device_count()) < (needed := self.gpus * (self.jobs or 1)):
            raise ConfigError(
                f"trainings at --scale paper take {self.gpus} GPUs each, {needed} in all, and torch sees {have} here: "
                "--dry-run checks every training, --gpus N takes fewer for each, and --jobs 1 runs one at a time"
            )

    def _require_room(self, needed: Iterable[Training]) -> None:
        """Nothing that is kept is written over."""
        for training in needed:
            if (path := place_of(training, self.results)).exists():
                raise ConfigError(
                    f"{path} is kept from a training of other settings, or of a module that has changed since: "
                    "move it away, or choose another folder with --results"
                )

    def _kept(self, training: Training) -> bool:
        """Whether a run that was finished before is kept now."""
        folder = self.runs / training.place
        return folder.is_dir() and keep(training, folder, self.results) is not None

    def _ended(self, name: str, child: ChildRun, training: Training, bars: Bars) -> bool:
        if child.failed:
            bars.print(
                escape(f"{name}: failed with status {child.status}: {child.last_log_line()} ({child.folder / LOG})")
            )
            return False
        try:
            written = keep(training, child.folder, self.results)
        except ConfigError as error:  # the others go on
            bars.print(escape(f"{name}: {error}"))
            return False
        if written is None:
            return False  # stopped
        kept = find(training, self.results)
        assert kept is not None
        told = f"{kept.start['success']:.1%} to {kept.end['success']:.1%} of the test tasks"
        if training.seed == TUNING_SEED:  # who chooses is not to see the test tasks
            told = f"{validated(kept):.1%} of the validation tasks"
        bars.print(f"{escape(name)}: {told}")
        return True
