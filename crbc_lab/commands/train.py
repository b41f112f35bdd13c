"""`crbc train`: runs the training of a config and writes its report."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from crbc_envs.errors import DataError
from crbc_envs.storage.rollouts import read_groups
from crbc_lab.commands.console import print_line, view_command
from crbc_lab.interrupts import PATIENT, Interrupts, hurried, stop_with_parent
from crbc_lab.plan.check import check_run
from crbc_lab.progress import TrainProgress
from crbc_lab.report import write_report
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run, is_run, near_runs, own_model
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.model import initial
from crbc_rl.runs.transcripts import kept

log = logging.getLogger(__name__)


def train(config: TrainConfig, folder: Path, resume: bool, console: Console, follow_links: bool = False) -> None:
    """Train `config` in the run folder `folder`. Shows progress and, at the end, the results."""
    distributed = Distributed.join()
    console.quiet = not distributed.main
    if distributed.main and hurried():
        log.warning("torchrun kills what has not ended 30 seconds after SIGTERM: start it with %s to save", PATIENT)
    with Interrupts() as interrupts:
        stop_with_parent()
        with TrainProgress(console, config.updates) as progress:
            own = own_model(folder, config)
            if distributed.main:
                with suppress(ConfigError):  # the check says it
                    initial(own)  # an adapter is merged once, and then all ranks begin with it
            distributed.barrier()
            checked = check_run(own, gpus=distributed.size, online=True)
            checked.require()
            config = config.model_copy(update={"rollout": checked.config.rollout})
            run = Run.start(folder, config, resume, distributed, follow_links)
            learner = Learner(config, run, progress, distributed)
            console.print(
                f"[bold]{escape(config.name)}[/]  {escape(f'{config.credit.method} on {config.env.id}')}, "
                f"seed {config.seed}, {sum(p.numel() for _, p in learner.actor.named):,} parameters, "
                f"run folder {escape(str(folder))}" + (f", tracked by {config.tracking}" if config.tracking else ""),
                soft_wrap=True,
            )
            if learner.update:
                console.print(f"continuing after update {learner.update} of {config.updates}")
            progress.begin(learner.update)
            interrupts.stop = partial(_stop, learner, progress)
            learner.train()
            interrupts.stop = None
        if distributed.main:
            show_outcome(folder, learner.update, console)
    distributed.leave()


def require_run(folder: Path) -> None:
    """Raise `ConfigError` where no run was started in a folder, naming the nearest that was."""
    if not is_run(folder):
        raise ConfigError(
            f"--resume: there is no run in {folder}{near_runs(folder)}; without --resume the command starts one"
        )


def _stop(learner: Learner, progress: TrainProgress) -> None:
    learner.stop()
    progress.stopping()


def show_outcome(folder: Path, update: int, console: Console) -> None:
    """Print the results of a run that ended after `update`, and write its report."""
    report_path = write_report(folder)
    tested = evaluated(read_metrics(folder), "test")
    if len(tested) < 2 or tested[-1]["update"] != update:  # an older test is that of a policy before
        console.print(
            f"[yellow]stopped after update {update}; everything up to it is saved[/]\n"
            f"to continue: the same command with --resume\nreport {escape(str(report_path))}",
            soft_wrap=True,
        )
        return
    console.print("\n[bold]held-out success[/] (test split, never trained on)")
    for name, record in (("warm start", tested[0]), ("trained", tested[-1])):
        low, high, tasks = record["test/low"], record["test/high"], record["test/episodes"]
        console.print(
            f"  {name:10} [bold]{record['test/success']:6.1%}[/]  95 % interval {low:.1%} to {high:.1%}  "
            f"({round(record['test/success'] * tasks)} of {tasks})",
            highlight=False,
        )
    for name in (key for key in tested[0] if key in tested[-1]):
        if name.startswith("test/success/"):
            kind, before, after = name.rpartition("/")[2], tested[0][name], tested[-1][name]
            console.print(f"    {escape(kind):8} {before:6.1%} before, {after:6.1%} after", highlight=False)
    console.print(f"report {escape(str(report_path))}", soft_wrap=True)
    for last in [one.path for one in kept(folder) if one.kind == "test" and one.update][-1:]:
        with suppress(DataError):  # a damaged file, of which the report has warned
            if any(group.success_rate < 1 for group in read_groups(last)):
                print_line(console, f"look first at what it lost: {view_command(folder)}  ('f' is the next failure)")
