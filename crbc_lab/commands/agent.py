"""`crbc study agent`: what limits the agent of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from crbc_envs.actions import requested_action
from crbc_envs.core import Expert
from crbc_envs.demonstrations import advice
from crbc_envs.storage.files import replace_file
from crbc_envs.tasks import rng, stream
from crbc_envs.vector.contract import Member
from crbc_envs.vector.members import INDEPENDENT, begin, make_member, noise_seed
from crbc_lab.commands.bench import arguments
from crbc_lab.commands.console import print_line, print_written
from crbc_lab.interrupts import Interrupts
from crbc_lab.plan.check import check_run
from crbc_lab.progress import Bars
from crbc_lab.studies import agent_tables
from crbc_lab.studies.agent import CAUSES, Episode, Exploration, Findings, Reply, analyse, exploration, words_of
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.config.extensions import environment_errors
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.rollout.evaluate import Columns, Evaluation, joined, play_tasks, summarise
from crbc_rl.rollout.panel import eval_panel
from crbc_rl.runs.folder import Run

EXPLORED = 64
"""Tasks that are sampled in groups, at most."""
CHANGEABLE = ("env.", "eval.", "rollout.", "seed", "threads")
"""Keys that `--set` may change: the others belong to training, or to the model."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: `policy` is "best", "last" or "start" of the run, `episodes` None means as many as the config
    says, `spread` whether they are taken from the whole split, `samples` is the number of rollouts of a group.
    `settings` and `teacher` are key=value."""

    policy: str
    split: str
    episodes: int | None
    spread: bool
    samples: int
    settings: Sequence[str]
    teacher: Sequence[str]


@dataclass(frozen=True, slots=True)
class Start:
    """A task before its first step: its distance to success (`AnchorEnv.distance`), and whether the expert wins from
    there; None where there is no expert. `open_forms` has the beginnings of actions that take words of one's own.
    """

    distance: float | None
    won: bool | None
    open_forms: tuple[str, ...] = ()


def study_agent(path: Path, asked: Request, out: Path, console: Console) -> None:
    """Play the run's agent and its environment's expert, print what was measured, and write OUT/agent.json.

    Raises `ConfigError` for a folder that is no run, and for settings that cannot be played.
    """
    run = _opened(path, asked.settings)
    config = run.config
    count = config.eval.test_episodes if asked.episodes is None else asked.episodes
    check_run(config, evaluation=(asked.split, count)).require()
    options = arguments(asked.teacher, option="--teacher", what="an option of the expert")
    policy = run.policy(asked.policy)
    torch.set_num_threads(config.threads)
    said = ""
    with Interrupts(), Bars(console, lambda: said) as bars:

        def progress_of(what: str, total: int) -> Callable[[int], None]:
            bar = bars.add(what, total=total)

            def tell(done: int) -> None:
                nonlocal said
                said = f"  {what}: {done} of {total}"
                bars.update(bar, completed=done)

            return tell

        tasks = _tasks(config, asked.split, count, asked.spread)
        starts = _starts(config, asked.split, tasks, options, progress_of("expert", count))
        evaluation, episodes = _played(policy, config, asked.split, starts, progress_of("agent", count))
        explored = None
        if asked.samples:
            some = tasks[:: -(-count // EXPLORED)] if asked.spread else tasks[:EXPLORED]
            bar = progress_of("samples", len(some) * asked.samples)
            explored = _explored(policy, config, asked.split, some, asked.samples, bar)
    findings = analyse(episodes, explored)
    print_line(console, f"{asked.policy}: success {evaluation}")
    agent_tables.print_findings(findings, console)
    place = out / "agent.json"
    _write(place, path, config, asked, options, evaluation, findings, episodes)
    print_written(console, place)


def _opened(path: Path, settings: Sequence[str]) -> Run:
    """The run in a folder, with changes to what is played."""
    run = Run.open(path)
    for setting in settings:
        if not setting.startswith(CHANGEABLE):
            raise ConfigError(f"--set {setting}: only env., eval., rollout., seed and threads change what is played")
    return Run(path, load_config(path / "config.yaml", settings)) if settings else run


# ---- play -----------------------------------------------------------------------------------------


def _tasks(config: TrainConfig, split: str, count: int, spread: bool) -> Sequence[int]:
    """The tasks of the panel of `count` that the config names, each once; or `count` tasks at even distances over all
    of the split."""
    if not spread:
        return tuple(dict.fromkeys(eval_panel(config, split, count).tasks))
    with closing(config.member(split)) as env:
        return [i * len(env.panel) // count for i in range(count)]


def _starts(
    config: TrainConfig, split: str, tasks: Sequence[int], options: dict[str, Any], progress: Callable[[int], None]
) -> dict[int, Start]:
    seeds = [stream("evaluation", config.seed, task) for task in tasks]
    env_id, kwargs = config.registered_id(), {**config.env.kwargs, "split": split, "replies": "thought"}
    given = f"--teacher {' '.join(f'{name}={value}' for name, value in options.items())}: " if options else ""
    with environment_errors(f"{given}the expert of {config.env.id} cannot play", env_id):
        played = play_teacher(env_id, kwargs, tasks, seeds, config.rollout.dynamics, options, progress)
    return dict(zip(tasks, played, strict=True))


def _played(
    policy: TransformersPolicy,
    config: TrainConfig,
    split: str,
    starts: Mapping[int, Start],
    progress: Callable[[int], None],
) -> tuple[Evaluation, list[Episode]]:
    """The evaluation as `crbc eval` has it, and its episodes."""
    parts: list[Columns] = []
    episodes: list[Episode] = []
    how: dict[str, Any] = {"temperature": config.eval.temperature, "progress": progress}
    for columns, batch in play_tasks(policy, config, split, list(starts), "evaluation", config.seed, **how):
        parts.append(columns)
        episodes += _episodes(policy, config, columns, batch, starts)
    return summarise(split, joined(parts)), episodes


def _explored(
    policy: TransformersPolicy,
    config: TrainConfig,
    split: str,
    tasks: Sequence[int],
    samples: int,
    progress: Callable[[int], None],
) -> Exploration:
    temperature, seed = config.rollout.temperature, config.seed
    how: dict[str, Any] = {"temperature": temperature, "group_size": samples, "progress": progress}
    played = play_tasks(policy, config, split, tasks, "exploration", seed, **how)
    columns = joined([columns for columns, _ in played])
    return exploration(columns["success"].reshape(len(tasks), samples), columns["content"][::samples].tolist())


def _episodes(
    policy: TransformersPolicy, config: TrainConfig, columns: Columns, batch: RolloutBatch, starts: Mapping[int, Start]
) -> list[Episode]:
    """An `Episode` for each rollout of a batch."""
    valid = batch.rollouts.valid.tolist()
    replies = [_reply(policy, config, turn, ok) for turn, ok in zip(batch.turns, valid, strict=True)]
    ends = np.cumsum(columns["length"]).tolist()
    kinds, contents = (columns[name].tolist() for name in ("kind", "content"))
    return [
        Episode(
            task=task,
            success=bool(columns["success"][i]),
            replies=replies[end - int(columns["length"][i]) : end],
            kind=kinds[i],
            content=contents[i],
            truncated=bool(columns["truncated"][i]),
            distance=starts[task].distance,
            teacher=starts[task].won,
            open_forms=starts[task].open_forms,
        )
        for i, (task, end) in enumerate(zip(columns["task"].tolist(), ends, strict=True))
    ]


def _reply(policy: TransformersPolicy, config: TrainConfig, turn: Turn, valid: bool) -> Reply:
    return Reply(
        valid=valid,
        action=requested_action(turn.text, config.replies),
        cut=turn.response[-1] not in policy.ends and len(turn.response) >= config.rollout.max_new_tokens,
        words=frozenset() if valid else words_of(policy.decode_prompt(turn)),
        tokens=len(turn.prompt),
        shortened=turn.shortened,
    )


# ---- the expert -----------------------------------------------------------------------------------


def play_teacher(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    tasks: Sequence[int],
    seeds: Sequence[int],
    dynamics: str | None,
    options: Mapping[str, Any],
    progress: Callable[[int], None] = lambda done: None,
) -> list[Start]:
    """One `Start` for each of `tasks`.

    A task begins as the first member of a group with its seed begins, and has its noise. `options` go to the
    environment's `expert`, whose `ValueError` or `TypeError` about them is raised. An expert that has no advice any
    more has lost.
    """
    starts = []
    with closing(make_member(env_id, dict(env_kwargs))) as env:
        for done, (task, seed) in enumerate(zip(tasks, seeds, strict=True), 1):
            own = (dynamics == INDEPENDENT) if dynamics else env.stochastic
            first = begin(env, seed, {"task": task}, noise_seed(seed, 0) if own else None)
            distance = env.distance()
            expert = env.expert(rng("teacher", seed), **options)
            forms = _open_forms(first[1]["admissible_actions"], env.placeholder)
            starts.append(Start(distance, None if expert is None else _wins(env, expert, *first), forms))
            progress(done)
    return starts


def _open_forms(actions: Sequence[str], placeholder: str) -> tuple[str, ...]:
    heads = (action.partition(placeholder)[0] for action in actions if placeholder and placeholder in action)
    return tuple(dict.fromkeys(head for head in heads if head))


def _wins(env: Member, expert: Expert, observation: Any, info: dict[str, Any]) -> bool:
    over = False
    while not over:
        if (reply := advice(expert, observation, info)) is None:
            return False
        observation, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
    return bool(info["success"])


# ---- output ---------------------------------------------------------------------------------------


def _write(
    place: Path,
    run: Path,
    config: TrainConfig,
    asked: Request,
    teacher: dict[str, Any],
    evaluation: Evaluation,
    findings: Findings,
    episodes: Sequence[Episode],
) -> None:
    """Write all measurements with what was played, and a row for each task. Makes the folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "run": run.name,
        "policy": asked.policy,
        "split": asked.split,
        "spread": asked.spread,
        "set": list(asked.settings),
        "env_id": config.env.id,
        "env_kwargs": config.env.kwargs,
        "teacher": teacher,
        "seed": config.seed,
        "temperature": {"evaluation": config.eval.temperature, "exploration": config.rollout.temperature},
        "limits": {name: getattr(config.rollout, name) for name in ("max_new_tokens", "max_prompt_tokens")},
        "causes": CAUSES,
        "evaluation": evaluation.to_dict(),
        "findings": agent_tables.plain(findings),
        "tasks": agent_tables.rows(episodes),
    }
    replace_file(place, (json.dumps(data, indent=1) + "\n").encode())
