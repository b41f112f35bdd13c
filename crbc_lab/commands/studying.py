"""The commands of `crbc study`, `crbc results` and `crbc paper` with their options. Any word after `crbc study` that is
no command names a study, a comparison of trained agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from crbc_lab.commands.console import console, print_line, print_written, progress_bar
from crbc_lab.commands.parse import (
    Count,
    Group,
    Index,
    MaybePath,
    Repeated,
    RunPath,
    Seeds,
    Settings,
    SomePath,
    StudyPath,
    permit,
)
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.names import find, shipped

if TYPE_CHECKING:
    from crbc_lab.studies.learning.study import Grid

OUT = Path("runs/studies")
RESULTS = Path("results")
ALL = "all"  # the name of all worlds together


def agent(
    run: RunPath,
    /,
    policy: Literal["best", "last", "start"] = "last",
    split: Literal["train", "validation", "test"] = "test",
    episodes: Count = None,
    spread: bool = False,
    samples: Index = 8,
    set: Settings = (),
    teacher: Settings = (),
    out: SomePath = OUT,
    allow_import: bool = False,
) -> None:
    """Measure what limits a run's agent: the tasks, invalid replies by cause, recovery, exploration, and the context.

    Plays held-out tasks as crbc eval does, and the environment's own expert on the same tasks. Writes OUT/agent.json.

    Args:
        run: a run folder.
        policy: the best policy on validation, the last one saved, or the initial one.
        split: the split; "train" shows what was trained on, or is held out where other data are played.
        episodes: number of tasks; default eval.test_episodes of the config.
        spread: take them at even distances from the whole split, which may be sorted, instead of from its begin.
        samples: rollouts of each of 64 of these tasks at the training temperature; 0: none.
        set: replaces what is played, each as section.key=value, such as env.kwargs.data=official.
        teacher: options of the environment's expert, each as key=value.
        out: folder for the JSON file.
        allow_import: run the modules that the run's config names.
    """
    folder = find(run, "run").path
    from crbc_lab.commands.agent import Request, study_agent

    permit(allow_import)
    asked = Request(policy, split, episodes, spread, samples or 0, tuple(chain(*set)), tuple(chain(*teacher)))
    study_agent(folder, asked, out, console)


def credit_accuracy(
    out: SomePath = OUT,
    quick: bool = False,
    seed: Index = 0,
    world: Annotated[tuple[str, ...], Repeated] = (),
    group_size: Annotated[tuple[int, ...], Repeated] = (),
    draws: Literal["choose", "report"] = "report",
    jobs: Count = 1,
) -> None:
    """Compare every estimator's advantages with the exact truth, in worlds small enough to solve.

    Args:
        out: folder for the JSON file.
        quick: a few seconds instead of up to three minutes.
        seed: seed of every draw.
        world: a world, or all; sokoban if none is given.
        group_size: rollouts per group; 8 if none is given.
        draws: the draws that figures are reported on, or those that options are chosen on.
        jobs: worker processes. The results are the same.
    """
    from crbc_lab.studies import credit_accuracy as study
    from crbc_lab.studies import credit_tables
    from crbc_lab.studies.estimators import standard
    from crbc_lab.studies.worlds import WORLDS

    for name in world:
        if name not in (*WORLDS, ALL):
            raise ConfigError(f"--world {name}: there is no such world{nearest(name, [*WORLDS, ALL])}")
    worlds = [*WORLDS.values()] if ALL in world else [WORLDS[name] for name in dict.fromkeys(world or ("sokoban",))]
    settings = replace(study.QUICK if quick else study.Settings(), draws=draws, seed=seed or 0)
    if group_size:
        settings = replace(settings, group_sizes=tuple(dict.fromkeys(group_size)))
    for size in settings.group_sizes:
        if size < 2:
            raise ConfigError(f"--group-size {size}: a group has at least 2 rollouts; give 2 or more")
    out.mkdir(parents=True, exist_ok=True)
    credit_tables.explain(console)
    scores: list[study.WorldScores] = []
    for one in worlds:
        with progress_bar(console, one.name) as progress:
            by_size = study.judge(one, standard(), settings, progress, jobs or 1)
        credit_tables.print_world(by_size, one, settings, console)
        scores += by_size
    data = out / "credit_accuracy.json"
    credit_tables.write_json(scores, worlds, settings, data)
    print_written(console, data)


def learning(
    out: SomePath = OUT / "learning",
    world: Annotated[tuple[str, ...], Repeated] = (),
    method: Annotated[tuple[str, ...], Repeated] = (),
    seeds: Seeds = None,
    instances: Count = None,
    updates: Count = None,
    every_rate: bool = False,
    alike: bool = False,
    group_size: Count = None,
    all: bool = False,
    plan: bool = False,
    jobs: Count = None,
    allow_import: bool = False,
) -> None:
    """Let agents without a language model learn by every estimator, and compare their exact success.

    Tables learn in worlds small enough to solve, and a small network on Sokoban's boards, by the learner's objective.
    Each estimator's rate is chosen on other instances. Stopped, it goes on when run again.

    Args:
        out: folder for the results, a file for each estimator and setting, and for the figure. What its plan states is
            run where no option below says another study.
        world: a setting, all of them, or a world of your own (module:attribute); eight worlds and one start of the
            network if none is given.
        method: an estimator, also with options (crbc,depth=0) or of a module (module:attribute), or all; truth and
            shuffled bound the others. Six and these two if none is given.
        seeds: such as 0-9, the default; those of another thousand have other instances.
        instances: processes of each world, each with tables of its own; default 16.
        updates: updates of a training; default 40.
        every_rate: try five rates in the place of three.
        alike: divide each update's advantages by their root mean square, so that all estimators have one scale.
        group_size: rollouts of a group; default 8.
        all: everything in folders of OUT: all methods in all settings with 64 instances and 20 seeds, each option of
            CRBC, one scale for all, and other group sizes. Says its hours first.
        plan: state in OUT/plan.json what would be run, and run nothing. Another study is then refused there.
        jobs: worker processes; default by the cores. The results are the same.
        allow_import: run the module of an estimator or a world of your own.
    """
    permit(allow_import)
    from crbc_lab.studies.learning import study, whole
    from crbc_lab.studies.learning.settings import FEW, SETTINGS, setting
    from crbc_lab.studies.learning.training import Budget
    from crbc_rl import credit

    for name in (name for name in world if name != ALL):
        setting(name)
    methods = (*(credit.METHODS if ALL in method else study.METHODS), *study.BOUNDS)
    asked = [one for name in method or methods for one in (methods if name == ALL else (name,))]
    worlds = [one for name in world or FEW for one in (SETTINGS if name == ALL else (name,))]
    chosen = any((world, method, seeds, instances, updates, every_rate, alike, group_size))
    if all and chosen:
        raise ConfigError("--all says what is run: leave the other options out")
    grid = (None if chosen else study.planned(out)) or study.Grid(
        tuple(map(study.named, dict.fromkeys(asked))),
        tuple(dict.fromkeys(worlds)),
        seeds or tuple(range(10)),
        instances or 16,
        every_rate=every_rate,
        budget=Budget(updates or 40, group_size or 8, alike),
    )
    grids = {out / name: one for name, one in whole.grids().items()} if all else {out: grid}
    for folder, one in grids.items():
        study.check(one, folder)
    if plan:
        print_written(console, *(study.write_plan(one, folder) for folder, one in grids.items()))
        return
    workers = jobs or os.cpu_count() or 1
    for folder, one in grids.items():
        hours = whole.cpu_seconds({folder: one}) / 3600 / workers
        print_line(console, f"{folder}: about {hours:.1f} hours with {workers} workers")
    for folder, one in grids.items():
        _learn(one, folder, workers)


def _learn(grid: Grid, folder: Path, workers: int) -> None:
    from crbc_lab.studies.learning import show, study

    with progress_bar(console, f"{folder}: estimators") as progress:

        def tell(done: int, total: int) -> None:
            progress(done, total)
            if not console.is_terminal:
                print_line(console, f"{folder}: {done} of {total} estimators in their settings")

        results = study.run(grid, folder, tell, workers)
    show.show(results, grid, folder / "learning.png", console)
    print_written(console, folder / "learning.png")


def list_(results: SomePath = RESULTS) -> None:
    """List the comparisons of trained agents, with what each costs and how much of it is finished.

    Args:
        results: folder of the finished trainings.
    """
    from crbc_lab.commands.compare import list_studies

    list_studies(results, console)


def compare(
    study: StudyPath,
    /,
    scale: Literal["lab", "paper"] = "lab",
    env: Annotated[tuple[str, ...], Repeated] = (),
    seeds: Count = None,
    jobs: Count = None,
    gpus: Count = None,
    runs: SomePath = OUT,
    results: SomePath = RESULTS,
    plan: bool = False,
    dry_run: bool = False,
    allow_import: bool = False,
) -> None:
    """Run a comparison of trained agents, or what it lacks, and print its tables: crbc study NAME.

    Stopped, it goes on when run again: finished trainings are kept in RESULTS, begun ones in RUNS.

    Args:
        study: a study that crbc study list names, such as main, or a YAML file of your own.
        scale: tiny agents on a CPU, or the paper's models and settings.
        env: a setting of the study, such as sokoban; all of them by default.
        seeds: number of seeds; by default the setting's.
        jobs: trainings at a time; default by the cores, and by the GPUs where there are any.
        gpus: GPUs of one training, a process each; default 8 at the paper's scale, else 1.
        runs: folder for the runs, which hold weights.
        results: folder for what is kept of each: small files, of which all tables are made.
        plan: state in RESULTS/plans what would be run, and run nothing. Other settings are then refused.
        dry_run: check every training, and run none.
        allow_import: run the modules that the study's configs name ("module:attribute").
    """
    from crbc_lab.commands.compare import check_trainings, run_settings
    from crbc_lab.studies.comparison.definition import GPUS, load_study

    permit(allow_import)
    known = load_study(str(study), also=STUDY.commands)
    envs = env or tuple(known.settings.get(scale, {}))
    if not envs:
        raise ConfigError(f"{known.name} has no setting at --scale {scale}")
    for name in envs:
        known.setting(scale, name)
    if plan:
        if env or seeds:
            raise ConfigError("--plan states a whole study: leave --env and --seeds out")
        from crbc_lab.studies.comparison.plan import write_plan

        print_written(console, write_plan(known, scale, results))
        return
    if dry_run:
        complete = check_trainings(known, scale, envs, gpus or GPUS[scale], console)
    else:
        from crbc_lab.studies.comparison.run import Runner  # which the others do without

        runner = Runner(runs, results, jobs, console, gpus or GPUS[scale])
        complete = run_settings(known, scale, envs, seeds, runner)
    if not complete:
        sys.exit(1)


def rebuild(results: SomePath = RESULTS, doc: MaybePath = None) -> None:
    """Make every table and figure of docs/results.md, agents.md and credit/learning.md anew from what is kept.

    Args:
        results: folder of the finished trainings and learning studies.
        doc: another document with marks such as <!-- results: main/lab/sokoban --> or <!-- learning: settings NAME -->.
    """
    docs = shipped() / "docs"
    for path in (docs / "results.md", docs / "agents.md", docs / "credit" / "learning.md") if doc is None else (doc,):
        _rebuild(path, results)


def _rebuild(path: Path, results: Path) -> None:
    from crbc_envs.storage.files import replace_file
    from crbc_lab.studies.comparison import document
    from crbc_lab.studies.learning import page

    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; name a document with --doc, with <!-- results: STUDY/SCALE/SETTING -->"
        )
    text = path.read_text(encoding="utf-8")
    if not (document.MARK.search(text) or page.MARK.search(text)):
        raise ConfigError(f"{path} has no part to make: write <!-- results: main/lab/sokoban --> and <!-- end -->")
    drawn: list[str] = []

    def picture(name: str, title: str, draw: Callable[[Path], None]) -> str:
        file = path.with_suffix("") / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        draw(file)
        drawn.append(name)
        return f"![{title}]({path.stem}/{name}.png)"

    made = page.rebuilt(document.rebuilt(text, results, picture), results, picture)
    replace_file(path, made.encode())
    print_line(console, f"wrote {path} and {len(drawn)} pictures")


RESULT = Group("Work with what is kept of the comparisons' trainings: crbc results rebuild.", {"rebuild": rebuild})
STUDY = Group(
    "Measure what limits an agent, test a claim of the paper, or compare trained agents: crbc study list names the "
    "comparisons, and crbc study NAME runs one.",
    {
        "agent": agent,
        "compare": compare,
        "credit-accuracy": credit_accuracy,
        "learning": learning,
        "list": list_,
    },
    otherwise="compare",
)
