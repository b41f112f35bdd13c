"""`crbc eval`: plays a policy on held-out tasks and prints its success with a confidence interval."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from crbc_envs.actions import OPEN_ACTION
from crbc_envs.chat import ChatEpisode
from crbc_lab.commands.console import print_line, print_written, view_command
from crbc_lab.commands.order import Order
from crbc_lab.commands.recording import CHUNK, Recording, finished, identity, recording
from crbc_lab.evaluation.record import Row, columns_of, record_metrics, rows_of
from crbc_lab.evaluation.scripted import play_scripted
from crbc_lab.interrupts import Interrupts
from crbc_lab.plan.check import check_run, fitting
from crbc_lab.plan.lengths import expert_lengths
from crbc_lab.progress import Bars
from crbc_rl.batches import Turn
from crbc_rl.config import RolloutConfig, TrainConfig
from crbc_rl.config.revisions import model_digest
from crbc_rl.errors import redacted
from crbc_rl.names import ADAPTER, WARMSTART
from crbc_rl.policies.api import Policy
from crbc_rl.policies.chat import ChatPolicy
from crbc_rl.policies.files import positions
from crbc_rl.policies.load import limit, load_player, merged
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.rollout.evaluate import Asking, Columns, play_tasks, summarise
from crbc_rl.rollout.invalid import InvalidReplies, by_cause, quotes
from crbc_rl.rollout.panel import EvalPanel, digest_of
from crbc_rl.rollout.prompts import prompt_options
from crbc_rl.runs.folder import Run
from crbc_rl.runs.transcripts import Plays, chosen, credit_of, write_plays

log = logging.getLogger(__name__)

Progress = Callable[[int], None]
SCRIPTS = ("expert", "random")
"""Policies that need no model."""

MAX_TOKENS = 4_096
"""New tokens of a reply of a model behind an endpoint, unless one says another number: thoughts are long."""


@dataclass(frozen=True, slots=True)
class Player:
    """Who is evaluated: its name, what tells it apart, and how it plays tasks with their repeats.

    `invalid` has the replies of this start, `plays` its first tasks. A model without one valid reply is no success:
    `must_reply`.
    """

    name: str
    identity: Mapping[str, Any]
    play: Callable[[Sequence[int], Sequence[int], Progress], Iterator[Columns]]
    invalid: InvalidReplies
    plays: Plays
    must_reply: bool = False


def evaluate(given: Path, policy: str | Path | ChatPolicy | None, order: Order, console: Console) -> bool:
    """Play what `order` says, print the result, and write it to `order.out`. Returns whether it counts: an endpoint
    that gave no valid reply has not been evaluated.

    `policy` is "best", "last" or "start" of the run that is `given`; or a chat endpoint, a model folder, or one of
    `SCRIPTS`. None: a run's last one, and the initial one of a config or of a warm start.
    """
    found, config = order.read(given, policy)
    policy = policy or ("last" if found.kind == "run" else "start")
    check_run(config, evaluation=(order.played_split, order.count(config))).require()
    other = policy if isinstance(policy, Path) else None
    trained = policy.check() if isinstance(policy, ChatPolicy) else bool(other and (other / WARMSTART).is_file())
    if found.kind == "config" and (trained or policy == "start"):  # a run and a warm start tell how long replies are
        taught = config if other is None else config.model_copy(update={"model": str(other), "base": None})
        config = config.model_copy(update={"rollout": fitting(taught, expert_lengths(taught, online=True)).rollout})
    panel, told = order.chosen(config)
    torch.set_num_threads(config.threads)
    player = _player(policy, trained, Run(found.path, config), panel, order, console)
    if order.out is None:
        rows = _played(player, panel, None, console)
    else:
        played = identity(config, panel, told, player.identity)
        document = finished(order.out, played)
        if document is None:
            with recording(order.out, played, panel, order.resume) as kept:
                _played(player, panel, kept, console)
                document = kept.finish()
            _keep_transcripts(config, player, order.out, console)
        rows = document["rows"]
        player.invalid.kept.update(document.get("invalid_replies", {}))
    _show(player, panel, rows, console)
    if order.out is not None:
        print_written(console, order.out)
    counts = not player.must_reply or any(row["invalid"] < row["length"] for row in rows)
    if not counts:
        log.error("%s gave no valid reply: this is no measure of its success. %s", player.name, HINT)
    return counts


def _keep_transcripts(config: TrainConfig, player: Player, out: Path, console: Console) -> None:
    """Write the tasks that this start has played beside `out`, as far as they are wanted."""
    plays, update = player.plays, player.identity.get("update", 0)
    policy = f"{player.name}, update {update}" if update else player.name
    told: dict[str, Any] = {"env_id": config.env.id, "update": update, "policy": policy, "credit": credit_of(config)}
    path = out.with_suffix(".transcripts.parquet")
    if plays.all and (written := write_plays(path, chosen(plays.all, plays.wanted), **told)):
        print_line(console, f"{len(written)} of the tasks, replies and all: {view_command(path)}")


HINT = "The lines above say what is wrong with the replies; docs/evaluation.md has the forms that are read"


def _player(
    policy: str | Path | ChatPolicy, trained: bool, run: Run, panel: EvalPanel, order: Order, console: Console
) -> Player:
    config, split, invalid = run.config, panel.split, InvalidReplies()
    plays = Plays(order.transcripts if order.out is not None else 0, lambda turn: "")

    def watch(turn: Turn) -> None:
        invalid.add(turn.text, turn.cause)
        if warning := invalid.warning():
            log.warning(warning)

    if isinstance(policy, ChatPolicy):
        asking = _asking(config, trained, order.max_tokens, MAX_TOKENS)
        print_line(console, _asked(policy.model, config, asking, trained, panel))
        endpoint = {"which": "endpoint", "url": redacted(policy.url), "model": policy.model, **asdict(asking)}
        play = partial(_play, policy, config, split, asking, watch, plays)
        return Player(policy.model, {**endpoint, "extra_body": policy.extra}, play, invalid, plays, must_reply=True)
    if isinstance(policy, Path):
        whole = merged(policy) if (policy / ADAPTER).is_file() else policy
        model = load_player(whole, precision=config.policy.precision)
        asking = _asking(config, trained, order.max_tokens, min(MAX_TOKENS, positions(model.model.config) // 2))
        rollout = config.rollout if trained else RolloutConfig()
        limit(model, rollout.model_copy(update={"max_new_tokens": asking.max_new_tokens}))
        print_line(console, _asked(policy.name, config, asking, trained, panel))
        told = {"which": "model", "name": policy.name, "digest": model_digest(whole), **asdict(asking)}
        told |= _placed(model, config)
        plays.decode = model.decode_prompt
        play = partial(_play, model, config, split, asking, watch, plays)
        return Player(policy.name, told, play, invalid, plays, must_reply=True)
    if policy in SCRIPTS:

        def script(tasks: Sequence[int], repeats: Sequence[int], progress: Progress) -> Iterator[Columns]:
            which: Any = policy
            return play_scripted(which, config, split, tasks, repeats, config.seed, progress, CHUNK)

        return Player(policy, {"which": policy}, script, invalid, plays)
    folder = run.policy_folder(policy)
    update = int(folder.name) if policy != "start" else 0
    checkpoint = {"which": policy, "update": update, "digest": model_digest(folder)}
    asking = Asking.of(config)
    if order.max_tokens is not None:
        asking = replace(asking, max_new_tokens=order.max_tokens)
        checkpoint["max_tokens"] = order.max_tokens
        rollout = config.rollout.model_copy(update={"max_new_tokens": order.max_tokens})  # a prompt has the other room
        run = Run(run.folder, config.model_copy(update={"rollout": rollout}))
    player = run.policy(policy)
    checkpoint |= _placed(player, config)
    plays.decode = player.decode_prompt
    return Player(policy, checkpoint, partial(_play, player, config, split, asking, watch, plays), invalid, plays)


def _placed(model: TransformersPolicy, config: TrainConfig) -> dict[str, str]:
    """How a model computes, where that is not on the CPU in float32: it decides how sums are rounded."""
    return {} if model.device.type == "cpu" else {"device": model.device.type, "precision": config.policy.precision}


def _asking(config: TrainConfig, trained: bool, max_tokens: int | None, usual: int) -> Asking:
    """How a model is asked: as in training where crbc has `trained` it, else so that any model can answer."""
    if trained:
        as_trained = Asking.of(config)
        return replace(as_trained, max_new_tokens=max_tokens or as_trained.max_new_tokens)
    replies = config.env.replies or ("tags" if config.protocol == "verl-agent" else "thought")
    return Asking(replies, max_tokens or usual, instructed=True)


def _asked(name: str, config: TrainConfig, asking: Asking, trained: bool, panel: EvalPanel) -> str:
    """How a model is asked, in words."""
    if trained:
        return f"{name} was trained by crbc: it is asked as it was trained"
    with closing(config.member(panel.split)) as env:
        chat = ChatEpisode(env, **prompt_options(config))
        chat.begin(panel.tasks[0], rollout=0)
        named = OPEN_ACTION in chat.prompt.text
    tags = "names its tags" if named else "names no tags: how to reply is added to it"
    return (
        f"{name}: the prompt {config.env.prompt!r} {tags}; replies have up to {asking.max_new_tokens:,} tokens "
        f"and are read by the grammar {asking.replies!r}"
    )


def _play(
    policy: Policy,
    config: TrainConfig,
    split: str,
    asking: Asking,
    on_turn: Callable[[Turn], None],
    plays: Plays,
    tasks: Sequence[int],
    repeats: Sequence[int],
    progress: Progress,
) -> Iterator[Columns]:
    for columns, batch in play_tasks(
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
        asking=asking,
        on_turn=on_turn,
    ):
        plays(columns, batch)
        if isinstance(policy, TransformersPolicy):
            policy.forget()  # a resumed evaluation has not read them, and comes to the same bytes
        yield columns


def _played(player: Player, panel: EvalPanel, kept: Recording | None, console: Console) -> list[Row]:
    """The rows of all episodes. Those that are kept already are not played again."""
    rows = [] if kept is None else list(kept.rows)
    begun, total = len(rows), len(panel.tasks)
    done, new, name = begun, total - begun, f"{panel.split} tasks"
    with Interrupts(), Bars(console, lambda: f"  {done} of {total} {name}, {bars.spent(done - begun, new)}") as bars:
        bar = bars.add(name, total=total)

        def tell(ended: int) -> None:
            nonlocal done
            done = begun + ended
            bars.update(bar, completed=done)

        for columns in player.play(panel.tasks[begun:], panel.repeats[begun:], tell):
            fresh = rows_of(columns)
            rows += fresh
            if kept is not None:
                kept.add(fresh, player.invalid.kept)
    return rows


def _show(player: Player, panel: EvalPanel, rows: Sequence[Row], console: Console) -> None:
    result, numbers = summarise(panel.split, columns_of(rows)), record_metrics(panel.split, rows)
    print_line(console, f"{player.name}: success {result}")
    console.print(
        f"score {result.score:.2f}  reward {result.reward:.2f} (by step {result.reward_by_step:.2f})  "
        f"length {result.length:.1f}  invalid {result.invalid_share:.1%}  truncated {result.truncated_share:.1%}",
        highlight=False,
    )
    if result.causes:
        print_line(console, f"invalid replies by cause: {by_cause(result.causes)}")
        for line in quotes(player.invalid.kept):
            print_line(console, line)
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
