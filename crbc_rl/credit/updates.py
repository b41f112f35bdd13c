"""Credit for one update of another trainer: its rows as they lie in the batch, some of them no steps of ours.

Trainers fill their batches with rows that mean nothing, and go on where a rollout has failed. Here such groups get no
credit and are counted. `advantages_from_rows` refuses them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anchors import EmpiricalProcess, GroupError
from crbc_rl.credit.api import Floats, Method, check_scale, estimator_of
from crbc_rl.credit.columns import flags, integers, numbered, plain, read
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.metrics import credit_metrics
from crbc_rl.credit.rewards import Reward
from crbc_rl.credit.rows import NEEDED, OPTIONAL, Table, check_earned

Row = Mapping[str, Any]
"""One environment step, with the columns of `advantages_from_rows`: `ChatEpisode.record` is one."""


def advantages_of_update(
    rows: Sequence[Row | None],
    *,
    group_size: int,
    num_groups: int | None = None,
    method: str | Method = "crbc",
    scale: float = 1.0,
    earns: Reward | None = None,
    **options: Any,
) -> tuple[Floats, dict[str, float]]:
    """The advantage of every row, (n,) float64 in the order of the rows, and figures for the trainer's log.

    `rows` have any order; None is a filler, and gets 0. A group of which a rollout or a row is missing gets 0, and a
    warning names the first of them. `num_groups` is how many there were; without it nothing tells of a group of which
    every row is missing. `method`, `scale`, `earns` and `options` are as in `advantages_from_rows`, but `scores` are a
    column of the rows, or a function. What rows hold besides its columns is passed over.

    The figures: `success` is the share of rollouts that succeeded and `length` the mean number of their steps, where a
    rollout counts once, with all its rows or not. `rollouts` and `groups` count them, `broken_groups` those without
    credit. `advantage_size` is the mean |advantage| of the rows with credit; the others are those of
    `credit_metrics` over these rows, such as `gate_open` and `coverage/full`.

    Raises `GroupError` for a row that is there twice, one without a column, and a group of more than `group_size`
    rollouts; `CreditError` for an unknown method or option.
    """
    estimator = estimator_of(method)
    options |= {} if earns is None else {"reward": earns}
    check_scale(scale)
    estimator.check(options)
    live = [number for number, row in enumerate(rows) if row]
    columns = _columns([rows[number] or {} for number in live])
    check_earned(options, columns)
    if "scores" in options and ("scores" in columns or not callable(options["scores"])):
        raise CreditError("scores: give one number per row as its column, or a function of the rollouts, and not both")
    lost, figures = _lost(columns, group_size)
    gone = max(0, (num_groups or 0) - int(figures["groups"]))
    if lost or gone:
        figures |= {"groups": figures["groups"] + gone, "broken_groups": float(len(lost) + gone)}
        first = next(iter(lost.values()), f"{gone} of {num_groups} groups have no row at all")
        warnings.warn(
            f"{first}; {figures['broken_groups']:.0f} of {figures['groups']:.0f} groups get no credit", stacklevel=2
        )
    whole = [place for place, group in enumerate(columns["group"]) if group not in lost]
    values = np.zeros(len(rows))
    if whole:
        columns = {name: [column[place] for place in whole] for name, column in columns.items()}
        scores = columns.pop("scores", None)
        table = Table.read(columns, group_size)
        if scores is not None and (estimator.takes_any or estimator.options.get("scores", 0) is None):
            options["scores"] = table.scores(read("scores", scores))
        process = EmpiricalProcess.from_interned(table.interned())
        terms = estimator.terms(process, **options)
        values[np.array(live)[whole][table.order]] = scale * terms.final
        figures["advantage_size"] = abs(scale) * float(np.abs(terms.final).mean())
        figures |= credit_metrics(process, terms)
    return values, figures


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The columns that the rows have. Raises `GroupError` for a row without one that is needed, or that others have."""
    if not rows:
        raise GroupError("every row has lost its record: no step is left to give credit to")
    there = set().union(*rows)
    names = [*NEEDED, *(name for name in (*OPTIONAL, "scores") if name in there)]
    for row in rows:
        for name in names:
            if name not in row:
                known = ", ".join(f"{column} {row[column]!r}" for column in NEEDED[:3] if column in row)
                raise GroupError(f"the row of {known or sorted(row)} has no {name!r}")
    columns = {name: plain(name, [row[name] for row in rows]) for name in names}
    for name in ("group", "rollout"):
        numbered(name, columns[name])  # ids that cannot be told apart are an error
    readers: dict[str, Any] = {"length": integers, "step": integers, "success": flags}
    for name, reader in readers.items():
        if (odd := reader(name, columns[name])[1]) is not None:
            where = ", ".join(f"{column} {columns[column][odd]!r}" for column in ("group", "rollout"))
            raise GroupError(f"{where}: {name} is {columns[name][odd]!r}")
    return columns


def _lost(columns: Mapping[str, list[Any]], group_size: int) -> tuple[dict[Any, str], dict[str, float]]:
    """What is missing, by group, and the figures of all rollouts of which a row is there."""
    members = list(zip(columns["group"], columns["rollout"], strict=True))
    known = dict(zip(members, zip(columns["length"], columns["success"], strict=True), strict=True))
    there: dict[Any, list[int]] = {member: [] for member in known}
    for member, step in zip(members, columns["step"], strict=True):
        there[member].append(step)
    sizes = Counter(group for group, _ in known)
    lost = {
        group: f"group {group!r} has rows of {size} rollouts, of {group_size}"
        for group, size in sizes.items()
        if size < group_size
    }
    for (group, rollout), (length, _) in known.items():
        steps = there[group, rollout]
        if len(steps) < length:
            missing = next(step for step in range(len(steps) + 1) if step not in steps)
            lost.setdefault(group, f"group {group!r}, rollout {rollout!r}, step {missing}: the row is lost")
    lengths, successes = zip(*known.values(), strict=True)
    figures = {"success": float(np.mean(successes)), "length": float(np.mean(lengths)), "rollouts": float(len(known))}
    return lost, {**figures, "groups": float(len(sizes)), "broken_groups": float(len(lost))}
