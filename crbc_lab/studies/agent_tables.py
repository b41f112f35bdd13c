"""The measurements of `crbc_lab.studies.agent` as tables and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_lab.studies.agent import CAUSES, Episode, Exploration, Findings, Rate, Recovery, causes_of, command_words


def print_findings(findings: Findings, console: Console) -> None:
    """Print every measurement: tables of success and of invalid replies, then a line each."""
    console.print(_successes(findings))
    console.print(_invalid(findings))
    lines = [
        f"out of steps    {findings.out_of_steps:.1%} of the episodes",
        _recovery(findings.recovery),
        *_context(findings),
        *([] if findings.exploration is None else _exploration(findings.exploration)),
    ]
    for line in lines:
        console.print(escape(line), highlight=False, soft_wrap=True)


def _successes(findings: Findings) -> Table:
    table = Table(title="success, with 95 % intervals", title_justify="left", box=SIMPLE_HEAD)
    for head in ("", "tasks", "agent", "expert"):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    for title, parts in (
        ("", [findings.success]),
        ("kind", findings.by_kind),
        ("distance at the start", findings.by_distance),
        ("tokens, first prompt", findings.context.by_first),
        ("tokens, longest prompt", findings.context.by_longest),
    ):
        if title.startswith("tokens") and len(parts) == 1:
            continue  # all prompts have one length
        if title and parts:
            table.add_section()
            table.add_row(f"[bold]{title}[/]")
        for part in parts:
            name = f"  {part.name}" if title else part.name
            table.add_row(escape(name), f"{part.agent.tasks:,}", _rate(part.agent), _rate(part.teacher))
    return table


def _rate(rate: Rate | None) -> str:
    return "-" if rate is None else f"{rate.rate:.1%} ({100 * rate.low:.0f} to {100 * rate.high:.0f})"


def _invalid(findings: Findings) -> Table:
    table = Table(title=f"invalid replies, of all {findings.replies:,}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("cause")
    table.add_column("replies", justify="right")
    table.add_column("with repeats", justify="right")
    table.add_column("which")
    for cause, share in findings.invalid.items():
        alone = f"{findings.with_repeats[cause]:.1%}" if cause in findings.with_repeats else ""
        table.add_row(cause, f"{share:.1%}", alone, CAUSES[cause])
    every = f"{sum(findings.invalid.values()):.1%}"
    table.add_row("all", every, every)
    return table


def _recovery(recovery: Recovery) -> str:
    if recovery.some is None:
        return "recovery        no reply was invalid"
    followed = "-" if recovery.followed is None else f"{recovery.followed:.1%}"
    others = "no other episodes" if recovery.none is None else f"{_rate_of(recovery.none)} without"
    return (
        f"recovery        {followed} of invalid replies are followed by a valid one; success of episodes with one "
        f"{_rate_of(recovery.some)}, {others}"
    )


def _rate_of(rate: Rate) -> str:
    return f"{rate.rate:.1%} (of {rate.tasks:,})"


def _context(findings: Findings) -> Iterable[str]:
    context = findings.context
    yield (
        f"context         prompt tokens: median {context.median:,.0f}, 95 % at most {context.most_95:,.0f}, "
        f"longest {context.longest:,}; shortened {context.shortened:.1%}; the first prompt of "
        f"{context.first_shortened:,} tasks does not fit"
    )
    parts = ", ".join(f"{share:.1%} at {tokens}" for tokens, share in context.invalid.items())
    yield f"                invalid replies by prompt tokens: {parts}"


def _exploration(exploration: Exploration) -> Iterable[str]:
    best = ", ".join(f"{share:.1%} of {k}" for k, share in exploration.best_of.items())
    yield (
        f"exploration     {exploration.tasks:,} tasks, {exploration.samples} rollouts each at the training temperature"
        f": success {exploration.success:.1%}; best {best}"
    )
    yield (
        f"                solved by none {exploration.all_lost:.1%}; groups with both outcomes, which alone have a "
        f"group advantage, {exploration.mixed:.1%}"
    )


# ---- plain data -----------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Dataclasses as dicts, all the way down. A `Rate` has its rate too."""
    if isinstance(value, Rate):
        return {"rate": value.rate, "won": value.won, "tasks": value.tasks, "low": value.low, "high": value.high}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def rows(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    """A row for each task, with the number of its invalid replies by cause. A distance without a way is "no way"."""
    verbs = command_words(episodes)
    return [
        {
            "task": e.task,
            "kind": e.kind,
            "distance": "no way" if e.distance == math.inf else e.distance,
            "success": e.success,
            "teacher": e.teacher,
            "truncated": e.truncated,
            "length": len(e.replies),
            "first_prompt": e.replies[0].tokens,
            "longest_prompt": max(reply.tokens for reply in e.replies),
            **{cause: causes.count(cause) for cause in CAUSES if (causes := causes_of(e, verbs))},
        }
        for e in episodes
    ]
