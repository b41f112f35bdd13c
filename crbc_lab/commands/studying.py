"""The commands of `crbc study` and `crbc results` with their options. Any word that is no command names a study, a
comparison of trained agents."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import tyro

from crbc_lab.commands.console import PlainConsole
from crbc_lab.commands.parse import Count, Group, Index, MaybePath, RunPath, SomePath, StudyPath
from crbc_lab.commands.permission import permit

Repeated = tyro.conf.UseAppendAction
OUT = Path("runs/studies")
RESULTS = Path("results")

console = PlainConsole()


def agent(
    run: RunPath,
    /,
    policy: Literal["best", "last", "start"] = "last",
    split: Literal["train", "validation", "test"] = "test",
    episodes: Count = None,
    spread: bool = False,
    samples: Index = 8,
    set: Annotated[tuple[tuple[str, ...], ...], Repeated] = (),
    teacher: Annotated[tuple[tuple[str, ...], ...], Repeated] = (),
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
    from crbc_lab.commands.agent import Request, study_agent

    permit(allow_import)
    asked = Request(policy, split, episodes, spread, samples or 0, tuple(chain(*set)), tuple(chain(*teacher)))
    study_agent(run, asked, out, console)


def anchors(
    env: tyro.conf.Positional[str | None] = None,
    /,
    out: SomePath = OUT,
    quick: bool = False,
    seed: Index = 0,
    set: Annotated[tuple[tuple[str, ...], ...], Repeated] = (),
) -> None:
    """Measure what each kind of anchor merges, and what of it the rollouts of a group share.

    Args:
        env: an environment id such as CRBC-ALFWorld-v0.
        out: folder for the JSON file.
        quick: a few seconds instead of half a minute.
        seed: seed of every draw.
        set: the environment's arguments, each as key=value, such as rooms=small.
    """
    from crbc_lab.commands.anchors import study_anchors

    study_anchors(env, tuple(chain(*set)), out, quick, seed or 0, console)


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
        out: folder for the JSON file and the PNG file.
        quick: a few seconds instead of up to three minutes.
        seed: seed of every draw.
        world: a world, or all; sokoban if none is given.
        group_size: rollouts per group; 8 if none is given.
        draws: the draws that figures are reported on, or those that options are chosen on.
        jobs: worker processes. The results are the same.
    """
    from crbc_lab.commands.study import study_accuracy

    study_accuracy(world, group_size, draws, jobs or 1, out, quick, seed or 0, console)


def dynamics(out: SomePath = OUT, quick: bool = False, seed: Index = 0) -> None:
    """Measure what groups lose whose copies share one stream of noise, on slippery FrozenLake.

    Args:
        out: folder for the JSON file.
        quick: a few seconds instead of up to three minutes.
        seed: seed of every draw.
    """
    from crbc_lab.commands.study import study_dynamics

    study_dynamics(out, quick, seed or 0, console)


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
    dry_run: bool = False,
    tiny: bool = False,
    allow_import: bool = False,
) -> None:
    """Run a comparison of trained agents, or what it lacks, and print its tables: crbc study NAME.

    Stopped, it goes on when run again: finished trainings are kept in RESULTS, begun ones in RUNS.

    Args:
        study: a study that crbc study list names, such as main, or a YAML file of your own.
        scale: tiny agents on a CPU, or the paper's models and settings.
        env: a setting of the study, such as sokoban; all of them by default.
        seeds: number of seeds, 0 and up; by default the setting's.
        jobs: trainings at a time; default by the cores, and one where there is a GPU.
        gpus: GPUs of one training, a process each; default 8 at the paper's scale, else 1.
        runs: folder for the runs, which hold weights.
        results: folder for what is kept of each: small files, of which all tables are made.
        dry_run: check every training, and run none.
        tiny: one update of every training with a tiny random model on embedded data, to see that it runs.
        allow_import: run the modules that the study's configs name ("module:attribute").
    """
    from crbc_lab.commands.compare import compare as run
    from crbc_lab.studies.comparison.definition import load_study

    permit(allow_import)
    known = load_study(str(study), also=STUDY.commands)
    if not run(known, scale, env, seeds, jobs, gpus, runs, results, dry_run, tiny, console):
        sys.exit(1)


def rebuild(results: SomePath = RESULTS, doc: MaybePath = None) -> None:
    """Make every table and figure of docs/results.md anew from the finished trainings.

    Args:
        results: folder of the finished trainings.
        doc: another document with marks such as <!-- results: main/lab/sokoban -->.
    """
    from crbc_lab.commands.results import rebuild as write

    write(results, doc, console)


RESULT = Group("Work with what is kept of the comparisons' trainings: crbc results rebuild.", {"rebuild": rebuild})
STUDY = Group(
    "Measure what limits an agent, test a claim of the paper, or compare trained agents: crbc study list names the "
    "comparisons, and crbc study NAME runs one.",
    {
        "agent": agent,
        "anchors": anchors,
        "compare": compare,
        "credit-accuracy": credit_accuracy,
        "dynamics": dynamics,
        "list": list_,
    },
    otherwise="compare",
)
