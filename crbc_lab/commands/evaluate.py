"""`crbc eval`: plays a policy on held-out tasks and prints its success with a confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from crbc_envs.vector.members import make_member
from crbc_lab.commands.console import print_line, print_written
from crbc_lab.commands.recording import CHUNK, Recording, finished, identity, recording, require_place
from crbc_lab.plan.check import check_run
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.config.revisions import model_digest
from crbc_rl.errors import ConfigError, redacted
from crbc_rl.policies.api import Policy
from crbc_rl.policies.chat import ChatPolicy
from crbc_rl.rollout.evaluate import play_tasks, summarise
from crbc_rl.rollout.exchange import Columns
from crbc_rl.rollout.panel import EvalPanel, Name, choose, digest_of
from crbc_rl.rollout.record import Row, columns_of, record_metrics, rows_of
from crbc_rl.rollout.scripted import play_scripted
from crbc_rl.runs.folder import Run
from crbc_rl.runs.interrupts import Interrupts
from crbc_rl.runs.progress import Bars

Progress = Callable[[int], None]
SCRIPTS = ("expert", "random")
"""Policies that need no model."""


@dataclass(frozen=True, slots=True)
class Player:
    """Who is evaluated: its name, what tells it apart, and how it plays tasks with their repeats."""

    name: str
    identity: Mapping[str, Any]
    play: Callable[[Sequence[int], Sequence[int], Progress], Iterator[Columns]]


def evaluate(
    path: Path,
    policy: str | ChatPolicy,
    split: str,
    episodes: int | None,
    console: Console,
    panel: Name | None = None,
    out: Path | None = None,
    resume: bool = False,
) -> None:
    """Play `episodes` tasks of `split` (by default as many as the config says), print the result, and write it to
    `out`.

    `policy` is "best", "last" or "start" of the run folder `path`, a chat endpoint, or one of `SCRIPTS`; for the last
    two, `path` may be a config. `panel` replaces the config's. With `resume`, an evaluation that was stopped goes on.
    """
    if out is not None:
        require_place(out, resume)
    elif resume:
        raise ConfigError("--resume continues what --out FILE.json has begun: name that file")
    modelless = isinstance(policy, ChatPolicy) or policy in SCRIPTS
    run = None if modelless and not path.is_dir() else Run.open(path)
    config = load_config(path) if run is None else run.config
    if panel is not None:
        config = config.model_copy(update={"eval": config.eval.model_copy(update={"panel": panel})})
    count = config.eval.test_episodes if episodes is None else episodes
    check_run(config, evaluation=(split, count)).require()
    with closing(make_member(config.registered_id(), {**config.env.kwargs, "split": split})) as env:
        chosen = choose(env.panel, split, count, config.eval.panel)
        digest = "" if out is None else chosen.digest(env.panel)  # it may cost as much as to begin all tasks
    torch.set_num_threads(config.threads)
    player = _player(policy, run, config, split)
    if out is None:
        rows = _played(player, chosen, None, console)
    else:
        played = identity(config, chosen, digest, player.identity)
        document = finished(out, played)
        if document is None:
            with recording(out, played, chosen, resume) as kept:
                _played(player, chosen, kept, console)
                document = kept.finish()
        rows = document["rows"]
    _show(player.name, chosen, rows, console)
    if out is not None:
        print_written(console, out)


def _player(policy: str | ChatPolicy, run: Run | None, config: TrainConfig, split: str) -> Player:
    seed = config.seed
    if isinstance(policy, ChatPolicy):
        policy.check()
        endpoint = {"which": "endpoint", "url": redacted(policy.url), "model": policy.model}
        return Player(policy.model, endpoint, partial(_play, policy, config, split))
    if policy in SCRIPTS:

        def script(tasks: Sequence[int], repeats: Sequence[int], progress: Progress) -> Iterator[Columns]:
            which: Any = policy
            return play_scripted(which, config, split, tasks, repeats, seed, progress, CHUNK)

        return Player(policy, {"which": policy}, script)
    assert run is not None
    folder = run.policy_folder(policy)
    update = int(folder.name) if policy != "start" else 0
    checkpoint = {"which": policy, "update": update, "digest": model_digest(folder)}
    return Player(policy, checkpoint, partial(_play, run.policy(policy), config, split))


def _play(
    policy: Policy, config: TrainConfig, split: str, tasks: Sequence[int], repeats: Sequence[int], progress: Progress
) -> Iterator[Columns]:
    for columns, _ in play_tasks(
        policy,
        config,
        split,
        tasks,
        "evaluation",
        config.seed,
        temperature=config.eval.temperature,
        progress=progress,
        repeats=repeats,
        batch_size=CHUNK,
    ):
        yield columns


def _played(player: Player, panel: EvalPanel, kept: Recording | None, console: Console) -> list[Row]:
    """The rows of all episodes. Those that are kept already are not played again."""
    rows = [] if kept is None else list(kept.rows)
    begun, total = len(rows), len(panel.tasks)
    done = begun
    with Interrupts(), Bars(console, lambda: f"  {done} of {total} {panel.split} tasks") as bars:
        bar = bars.add(f"{panel.split} tasks", total=total)

        def tell(ended: int) -> None:
            nonlocal done
            done = begun + ended
            bars.update(bar, completed=done)

        for columns in player.play(panel.tasks[begun:], panel.repeats[begun:], tell):
            fresh = rows_of(columns)
            rows += fresh
            if kept is not None:
                kept.add(fresh)
    return rows


def _show(name: str, panel: EvalPanel, rows: Sequence[Row], console: Console) -> None:
    result, numbers = summarise(panel.split, columns_of(rows)), record_metrics(panel.split, rows)
    print_line(console, f"{name}: success {result}")
    console.print(
        f"score {result.score:.2f}  reward {result.reward:.2f} (by step {result.reward_by_step:.2f})  "
        f"length {result.length:.1f}  invalid {result.invalid_share:.1%}  truncated {result.truncated_share:.1%}",
        highlight=False,
    )
    if result.prompt_cut_share:
        console.print(f"prompts shortened {result.prompt_cut_share:.1%}, as too long", highlight=False)
    digest = digest_of([row["content"] for row in rows], [row["repeat"] for row in rows])
    low, high = numbers["cluster_interval"]
    console.print(
        f"panel {panel.name}-{panel.version} {digest[:8]}: {numbers['distinct_tasks']} distinct tasks in "
        f"{numbers['clusters']} clusters (95 % interval over clusters {low:.1%} to {high:.1%})",
        highlight=False,
        soft_wrap=True,
    )
    for kind, (won, played) in result.kinds.items():
        console.print(f"    {escape(kind):8} {won / played:6.1%} ({won} of {played})", highlight=False)
