"""`crbc play --replay`: step through recorded rollouts, with each step's V, Q and Q - V under the closure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from anchors import EmpiricalProcess, RolloutGroup
from crbc_envs.actions import CLOSE_THINK, OPEN_THINK
from crbc_envs.printable import printable
from crbc_envs.storage.rollouts import Recording, read_recording
from crbc_lab.commands.console import replay_command
from crbc_lab.commands.screen import legend_of, picture
from crbc_rl import credit
from crbc_rl.errors import ConfigError
from crbc_rl.runs.transcripts import kept

Floats = NDArray[np.float64]

BETA = 0.98
"""Discount of the closure, as in the paper, where a file tells none."""
OPTIONS = ("beta", "depth", "horizon", "truncation", "invalid_cost")
"""Options of the closure that CRBC's credit has, too."""
LONGEST_REPLY = 4_000
"""The longest reply that is shown in full, in characters."""
LONGEST_TITLE = 300
"""The longest name of a task or an anchor."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The current step of a recording; all counted from 0."""

    group: int
    rollout: int
    step: int = 0


def replay(path: Path, group: int, rollout: int, console: Console, read: Callable[[str], str] = input) -> None:
    """Show steps until the user quits. `read` returns the user's input for a prompt.

    Raises `DataError` for a file without rollouts, and `ConfigError` for a folder, for a group or rollout that it does
    not have, and for credit that cannot be computed.
    """
    if path.is_dir():
        files = [Path("FILE"), *path.glob("*/*.parquet"), *(file for _, kind, file in kept(path) if kind == "test")]
        raise ConfigError(f"{path} is a folder, and --replay takes a file: {replay_command(files[-1])}")
    recording = read_recording(path)
    groups = recording.groups
    _check(path, "group", group, len(groups))
    _check(path, "rollout", rollout, len(groups[group]))
    options, told = closure_options(recording.credit)

    @cache
    def values(number: int) -> list[Floats]:
        try:
            return step_values(groups[number], options)
        except (credit.CreditError, TypeError) as error:
            raise ConfigError(f"{path}: no {told}: {error}") from error

    anchor = f"anchors {escape(printable(recording.anchor[:LONGEST_TITLE]))}  " if recording.anchor else ""
    played = f"update {recording.update}" if recording.policy is None else f"policy {printable(recording.policy)}"
    number = f"{len(groups)} group" + "s" * (len(groups) > 1)
    console.print(
        f"{escape(printable(recording.env_id or path.name))}  {escape(played[:LONGEST_TITLE])}  {number}  {anchor}"
        f"{escape(printable(told, LONGEST_TITLE))}\n[dim]Letter and Enter: 'n' or none is the next step, 'b' the one "
        "before, 'r' the next rollout, 'g' the next group, 'f' the next failure's end, 'p' the prompt, 'q' ends.[/]",
        highlight=False,
    )
    position = Position(group, rollout)
    while True:
        _show(console, recording, position, values(position.group)[position.rollout][position.step])
        try:
            while (line := read("replay> ").strip().lower()) in ("p", "prompt"):
                _show_prompt(console, recording, position)
        except (EOFError, KeyboardInterrupt):
            return
        if line in ("q", "quit"):
            return
        position = _moved(console, groups, position, line)


def closure_options(told: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """The options of the closure that stands for a run's credit, and what it is, in words."""
    if told is None:
        return {"beta": BETA}, f"closure at beta {BETA}; the file does not tell the run's credit"
    method, options = told["method"], told["options"]
    if method in ("crbc", "crbc_plus"):
        own = {name: options[name] for name in OPTIONS if name in options}
        depth = own.get("depth")
        return (
            own,
            f"closure at beta {own.get('beta', BETA)}, depth {'full' if depth is None else depth}, as in the run",
        )
    beta = options.get("gamma", BETA)
    return {
        "beta": beta
    }, f"closure at beta {beta} ({method} {'had this' if 'gamma' in options else 'has no'} discount)"


def step_values(group: RolloutGroup, options: Mapping[str, Any] = {"beta": BETA}) -> list[Floats]:
    """V(s_t), Q(s_t, a_t) and Q - V of every step, by the closure with `options`: one array (steps, 3) per rollout."""
    process = EmpiricalProcess.from_group(group)
    rollouts, pair = process.steps()
    result = credit.closure(process, **options)
    per_pair = np.stack([result.V[process.pair_anchor], result.Q, result.A], axis=1)
    return rollouts.split(per_pair[pair])[0]


def _check(path: Path, what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ConfigError(f"{path}: it has no {what} {number}: choose one from 0 to {count - 1} with --{what}")


def _moved(console: Console, groups: list[RolloutGroup], position: Position, line: str) -> Position:
    """The position after the command `line`. The first rollout or group follows the last."""
    members = groups[position.group].rollouts
    if line in ("", "n", "next"):
        if position.step + 1 < len(members[position.rollout]):
            return replace(position, step=position.step + 1)
        console.print("[yellow]That was the last step: 'r' is the next rollout, 'g' the next group.[/]")
    elif line in ("b", "back"):
        return replace(position, step=max(position.step - 1, 0))
    elif line in ("r", "rollout"):
        return Position(position.group, (position.rollout + 1) % len(members))
    elif line in ("g", "group"):
        return Position((position.group + 1) % len(groups), 0)
    elif line in ("f", "failure"):
        return _next_failure(console, groups, position)
    else:
        console.print("[yellow]Enter or 'n', 'b', 'r', 'g', 'f', 'p', 'q'.[/]")
    return position


def _next_failure(console: Console, groups: list[RolloutGroup], position: Position) -> Position:
    """Where the next rollout that failed ended, in the order of the file; behind the last comes the first."""
    rollouts = [(g, r, one) for g, group in enumerate(groups) for r, one in enumerate(group.rollouts)]
    ends = [Position(g, r, len(one) - 1) for g, r, one in rollouts if not one.success]
    if not ends:
        console.print("[yellow]Every rollout of this file succeeded.[/]")
        return position
    if position >= ends[-1]:
        console.print("[yellow]There is no failure behind this step; this is the first of the file.[/]")
    return next((end for end in ends if end > position), ends[0])


def _show(console: Console, recording: Recording, position: Position, values: Floats) -> None:
    group = recording.groups[position.group]
    rollout = group.rollouts[position.rollout]
    step = rollout.steps[position.step]
    title = (
        f"{group.task}  group {position.group} of {len(recording.groups)}  "
        f"rollout {position.rollout} of {len(group)}  step {position.step} of {len(rollout)}"
    )
    board = picture(step.label, legend_of(recording.env_id))
    console.print(Panel(board, title=Text(printable(title, LONGEST_TITLE)), expand=False))
    console.print(Text.assemble(("anchor  ", "dim"), printable(step.anchor, LONGEST_TITLE)))
    if recording.turns is not None:
        turn = recording.turns[recording.row(position.group, position.rollout, position.step)]
        known = f"  logprob {turn.logprob:.2f}" if turn.reply_ids else ""  # a model behind a server may tell none
        wrong = f"  invalid: {turn.cause}" if turn.cause else ""
        console.print(Text.assemble(("reply   ", "dim"), _reply(turn.reply), (known, "dim"), (wrong, "yellow")))
    ended = position.step + 1 == len(rollout)
    how = "solved" if rollout.success else "out of steps" if rollout.truncated else "failed"
    console.print(
        Text.assemble(
            ("action  ", "dim"),
            (printable(step.action, LONGEST_REPLY), "bold cyan" if step.valid else "bold yellow"),
            f"  reward {step.reward:+.1f}",
            (f"  {how}", "green" if rollout.success else "red") if ended else "",
        )
    )
    value, action_value, advantage = values.round(3) + 0.0  # no minus zero after rounding
    colour = "green" if advantage > 0 else "red" if advantage < 0 else "dim"
    console.print(
        Text.assemble(
            ("credit  ", "dim"),
            f"V {value:.3f}  Q {action_value:.3f}  ",
            (f"Q - V {advantage:+.3f}", colour),
        )
    )


def _show_prompt(console: Console, recording: Recording, position: Position) -> None:
    if recording.turns is None:
        console.print("[yellow]This recording has no prompts.[/]")
        return
    turn = recording.turns[recording.row(position.group, position.rollout, position.step)]
    console.print(Panel(Text(printable(turn.prompt)), title="prompt", expand=False))


def _reply(reply: str) -> Text:
    """A reply with its thinking part in italics."""
    text = Text(printable(reply, LONGEST_REPLY))
    begin = text.plain.find(OPEN_THINK)
    end = text.plain.find(CLOSE_THINK, begin)
    if 0 <= begin < end:
        text.stylize("italic dim", begin + len(OPEN_THINK), end)
    return text
