"""Credit for other trainers: from rows, one per environment step, with any ids and in any order.

Public trainers copy, repeat, drop and reorder rows to fill their batches. A closure over such rows is silently wrong.
So every rollout says how many steps the environment counted, and a row that is lost or repeated is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from anchors import FAILURE, INVALID, SUCCESS, GroupError, InternedRollouts
from anchors.columns import Bools
from crbc_rl.credit.api import Method, advantages_interned, check_options, check_scale
from crbc_rl.credit.columns import (
    Column,
    Values,
    by_appearance,
    flags,
    floats,
    integers,
    listed,
    numbered,
    plain,
    read,
    shown,
)
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import Floats, Ints, is_whole
from crbc_rl.credit.rewards import Reward

Reader = Callable[[str, Values], tuple[Any, int | None]]

NEEDED = ("group", "rollout", "step", "anchor", "action", "success", "length")
OPTIONAL = ("valid", "reward", "final_anchor", "truncated", "score")
"""The columns of a table of rows, in the order of `advantages_from_rows`."""


def advantages_from_rows(
    group: Column,
    rollout: Column,
    step: Column,
    anchor: Column,
    action: Column,
    success: Column,
    *,
    length: Column,
    valid: Column | None = None,
    reward: Column | None = None,
    final_anchor: Column | None = None,
    truncated: Column | None = None,
    score: Column | None = None,
    scores: Column | None = None,
    group_size: int | None = None,
    scale: float = 1.0,
    method: str | Method = "crbc",
    earns: Reward | None = None,
    **options: Any,
) -> Floats:
    """The advantage of every row, (n,) float64, in the order of the rows, times `scale`.

    A row is one environment step. Every column has one value per row; those of a rollout stand in all of its rows.
    `group`, `rollout` (within its group), `anchor` and `action` are any ids that are equal by value, as numbers and
    texts are. Where rows of several updates are pooled, the update is a part of the group's id: else the groups of one
    task are one. `step` counts from 0. `length` is the number of steps of the row's rollout as the environment counted
    them. `success` and `truncated` (by default not) say how the rollout ended. `valid` says whether the reply was well
    formed; by default the action is not `anchors.INVALID`. `reward` is the environment's own. `final_anchor` is the
    anchor after the rollout's last step, or None. `score` is the rollout's graded outcome in [0, 1], and `scores` a
    value per step from a model or a judge, for the method "scores", or a function as that method takes it.

    `group_size`: the rollouts of every group. Without it, nothing tells of a rollout of which every row is lost, and
    groups of unequal size are a warning, once. So are groups of one rollout: no other tells whether it was good.

    `method` and its `options` are as in `credit.advantages`. `earns`: what a step earns for the method, "outcome",
    "score" or "step". It is the option `reward` of `credit.advantages`, which is a column here.

    `scale`: credit has no fixed size. Under the defaults of "crbc" one success among eight rollouts gives advantages
    near 16, since the step term has weight 5 and is divided by a small deviation. A trainer that does not normalise
    what it is given may want 0.1. It is not 0, and each method has its own: docs/trainers.md.

    Raises `GroupError` that names group, rollout and step of a row that is lost, repeated, inconsistent or without a
    value, and the column that `earns` wants where it is not given. Raises `CreditError` for an unknown method or
    option, and for a score that is no finite number.
    """
    if isinstance(reward, str):
        raise CreditError(f"reward is a column here, the environment's own rewards: say earns={reward!r}")
    check_scale(scale)
    given = {"scores": scores, "reward": earns}
    options |= {name: value for name, value in given.items() if value is not None}
    check_options(method, options)
    columns = (group, rollout, step, anchor, action, success, length, valid, reward, final_anchor, truncated, score)
    named = dict(zip((*NEEDED, *OPTIONAL), columns, strict=True))
    check_earned(options, [name for name, column in named.items() if column is not None])
    table = Table.read(named, group_size)
    if scores is not None:
        options["scores"] = scores if callable(scores) else table.scores(read("scores", scores))
    credits = np.empty(len(table.order))
    credits[table.order] = advantages_interned(table.interned(), method, scale=scale, **options)
    return credits


def check_earned(options: Mapping[str, Any], columns: Collection[str]) -> None:
    """Raise `GroupError` where what steps earn under `options` is of a column that is not among `columns`."""
    for option in ("reward", "group_reward"):
        column = {"score": "score", "step": "reward"}.get(str(options.get(option)))
        if column is not None and column not in columns:
            raise GroupError(f"what steps earn is of the column {column!r}, and no row has it")


def per_token(advantages: Any, mask: Any) -> Any:
    """One of `advantages` per row, (B,), as one per token, (B, T): its row's where `mask` (B, T) is 1, else 0.

    With a torch mask the result is a float32 tensor on the mask's device, otherwise a float64 array. Raises
    `GroupError` if the shapes do not fit.
    """
    values = floats("advantages", read("advantages", advantages))[0]
    if len(getattr(mask, "shape", ())) != 2 or values.shape != tuple(mask.shape[:1]):
        raise GroupError(
            f"per_token: (B,) advantages and a (B, T) mask are wanted, got {values.shape} and "
            f"{tuple(getattr(mask, 'shape', ()))}"
        )
    if hasattr(mask, "new_tensor"):
        real = (mask != 0).float()
        return real * real.new_tensor(values.tolist())[:, None]
    return np.where(np.asarray(mask) != 0, values[:, None], 0.0)


class Table:
    """Rows and where they belong. `order` (n,) are the caller's row numbers by group, rollout and step."""

    @classmethod
    def read(cls, columns: Mapping[str, Column | None], group_size: int | None) -> Table:
        """The table of a caller's columns; None stands for a column that is not given."""
        table = cls({name: read(name, column) for name, column in columns.items() if column is not None})
        table.check_sizes(group_size)
        return table

    def __init__(self, columns: dict[str, Values]) -> None:
        self.rows, self.columns = len(columns["group"]), columns
        if not self.rows:
            raise GroupError("no rows given")
        for name, values in columns.items():
            self.check_size(name, values)
        self.group, groups = _ids("group", columns["group"])
        rollout, rollouts = _ids("rollout", columns["rollout"])
        member, known, first = by_appearance(self.group * len(rollouts) + rollout)
        by_group = np.argsort(self.group[first], kind="stable")
        places = [divmod(code, len(rollouts)) for code in known[by_group].tolist()]
        self.ids, self.first = [(groups[g], rollouts[r]) for g, r in places], first[by_group]
        self.member: Ints = np.argsort(by_group)[member]
        self.step: Ints | None = None
        self.step = self._read("step", integers, WHOLE)
        self.length: Ints = self._of_rollout("length", self._read("length", integers, WHOLE))
        self.order: Ints = np.lexsort((self.step, self.member))
        self._check_rows(self.step)

    def check_size(self, name: str, values: Values) -> None:
        if len(values) != self.rows:
            raise GroupError(f"{name}: {len(values)} values for the {self.rows} rows of group")

    def scores(self, values: Values) -> Floats:
        """One score per row, in order. Raises `CreditError` that names a row whose score is no finite number."""
        self.check_size("scores", values)
        numbers, odd = floats("scores", values)
        if odd is not None:
            raise CreditError(f"scores: {self._where(odd)}: a score is a finite number, got {shown(values, odd)}")
        return numbers[self.order]

    def interned(self) -> InternedRollouts:
        """The rollouts in order. Raises `GroupError` for rows that contradict each other."""
        order, given, group = self.order, self.columns, self.group[self.first]
        anchor, numbers = self._anchors()
        valid, action = self._actions()
        optional: dict[str, Any] = {}
        if "reward" in given:
            optional["reward"] = self._read("reward", floats, "a finite number")[order]
        if "score" in given:
            scores = self._read("score", partial(floats, least=0.0, most=1.0), "in [0, 1]")
            optional["score"] = self._of_rollout("score", scores)
        if "final_anchor" in given:
            codes = zip(group.tolist(), self._final_anchors(), strict=True)
            optional["final_anchor"] = np.array([numbers.get((g, anchor), -1) for g, anchor in codes])
        return InternedRollouts(
            rollout=self.member[order],
            step=np.arange(self.rows) - np.repeat(np.cumsum(self.length) - self.length, self.length),
            length=self.length,
            group=group,
            anchor=anchor[order],
            action=action[order],
            valid=valid[order],
            **self._outcomes(),
            **optional,
        )

    def check_sizes(self, group_size: int | None) -> None:
        """Raise `GroupError` for the first group without `group_size` rollouts. Groups that tell of lost or of too few
        rollouts are a warning."""
        if group_size is not None and not (is_whole(group_size) and group_size >= 1):
            raise GroupError(f"group_size: a whole number of rollouts is wanted, at least 1, got {group_size!r}")
        group = self.group[self.first]
        sizes = np.bincount(group)[group]
        names = [f"group {name!r}" for name, _ in self.ids]
        other = np.flatnonzero(sizes != (sizes[0] if group_size is None else group_size))
        if len(other) and group_size is not None:
            there = f"rows of {sizes[other[0]]} rollouts are there"
            raise GroupError(f"{names[other[0]]}: {there}, of {group_size} in a group")
        if len(other):
            there = f"{names[other[0]]} has rows of {sizes[other[0]]} rollouts and {names[0]} of {sizes[0]}"
            _warn("sizes", f"{there}: say group_size, so that a rollout of which every row is lost is noticed")
        if (sizes == 1).any():
            alone = names[int(np.argmax(sizes == 1))]
            _warn("one", f"{alone} has one rollout: what credit it gets compares the steps of that rollout alone")

    def _check_rows(self, steps: Ints) -> None:
        """Raise `GroupError` for the first row that is repeated, does not exist, or is lost."""
        member, step = self.member[self.order], steps[self.order]
        twice = np.flatnonzero((np.diff(member) == 0) & (np.diff(step) == 0))
        if len(twice):
            where = self._where(int(self.order[twice[0]]))
            raise GroupError(f"{where} is there twice; if that is of two updates, make the update a part of group")
        beyond = np.flatnonzero((step < 0) | (step >= self.length[member]))
        if len(beyond):
            row = int(self.order[beyond[0]])
            raise GroupError(
                f"{self._where(row)}: there is no such step; its length is {self.length[member[beyond[0]]]}"
            )
        lost = np.flatnonzero(np.bincount(member, minlength=len(self.ids)) != self.length)
        if len(lost):
            there = set(step[member == lost[0]].tolist())
            missing = next(t for t in range(len(there) + 1) if t not in there)
            raise GroupError(
                f"{self._name(int(lost[0]))}, step {missing}: the row is lost; {len(there)} of its "
                f"{self.length[lost[0]]} steps are there"
            )

    def _anchors(self) -> tuple[Ints, dict[tuple[int, Any], int]]:
        """The anchor number of every row, and each number by (group, id). A group's members must start at the same."""
        given, ids = numbered("anchor", self.columns["anchor"])
        for id in ids:
            if id in _NO_ANCHOR or id != id:
                row = int(np.argmax(given == ids[id]))
                raise GroupError(f"{self._where(row)} has no anchor (got {id!r})")
        numbers, known, _ = by_appearance(self.group * len(ids) + given)
        starts = numbers[self.order[np.cumsum(self.length) - self.length]]
        group = self.group[self.first]
        _, leader = np.unique(group, return_index=True)
        apart = np.flatnonzero(starts != starts[leader][group])
        if len(apart):
            one, other = self._name(int(apart[0])), self._name(int(leader[group[apart[0]]]))
            raise GroupError(
                f"{one} starts at another anchor than {other}; the members of a group share one task and one initial "
                "condition"
            )
        named, size = list(ids), len(ids)
        return numbers, {(code // size, named[code % size]): i for i, code in enumerate(known.tolist())}

    def _final_anchors(self) -> list[Any]:
        values = self.columns["final_anchor"]
        values = values if isinstance(values, np.ndarray) else plain("final_anchor", values)
        finals = listed(self._of_rollout("final_anchor", values))
        for id in numbered("final_anchor", finals)[1]:
            if id is not None and (id in _NO_ANCHOR or id != id):
                member = next(m for m, own in enumerate(finals) if own is id or own == id)
                raise GroupError(f"{self._name(member)}: final_anchor is an anchor or None, got {id!r}")
        return finals

    def _actions(self) -> tuple[Bools, Ints]:
        """Whether every row's reply was well formed, and the number of what was executed."""
        actions = self.columns["action"]
        if "valid" in self.columns:
            valid = self._read("valid", flags, "binary")
            actions = list(listed(actions))
            for row in np.flatnonzero(~valid).tolist():
                actions[row] = INVALID
        numbers, ids = numbered("action", actions)
        executed: Bools = numbers != ids.get(INVALID, -1)
        if "valid" not in self.columns:
            valid = executed
        for id in ids:
            if id is None or id == "" or id != id or (id == INVALID and (valid & ~executed).any()):
                row = int(np.argmax(valid & (numbers == ids[id])))
                raise GroupError(f"{self._where(row)} has no action (got {id!r}); a malformed reply is valid=False")
        return valid, numbers

    def _outcomes(self) -> dict[str, Any]:
        outcomes = {"success": self._of_rollout("success", self._read("success", flags, "binary"))}
        if "truncated" in self.columns:
            outcomes["truncated"] = self._of_rollout("truncated", self._read("truncated", flags, "binary"))
            both = np.flatnonzero(outcomes["success"] & outcomes["truncated"])
            if len(both):
                raise GroupError(f"{self._name(int(both[0]))}: it cannot both succeed and be truncated")
        return outcomes

    def _read(self, name: str, reader: Reader, wanted: str) -> Any:
        values, odd = reader(name, self.columns[name])
        if odd is not None:
            hint = "; a graded outcome is a score" if name == "success" else ""
            raise GroupError(f"{self._where(odd)}: {name} must be {wanted}, got {shown(self.columns[name], odd)}{hint}")
        return values

    def _of_rollout(self, name: str, values: Any) -> Any:
        """The values of a column by rollout. Raises `GroupError` where the rows of a rollout differ."""
        known: Any
        spread: Any
        if isinstance(values, np.ndarray):
            known = values[self.first]
            spread = known[self.member]
            odd = np.flatnonzero(spread != values).tolist()
        else:
            known = [values[row] for row in self.first.tolist()]
            spread = list(map(known.__getitem__, self.member.tolist()))
            odd = [] if spread == values else [i for i, v in enumerate(values) if v != spread[i]]
        if odd:
            one, other = shown(values, odd[0]), shown(spread, odd[0])
            raise GroupError(f"{self._where(odd[0])}: {name} is {one}, and {other} in another row of that rollout")
        return known

    def _name(self, member: int) -> str:
        group, rollout = self.ids[member]
        return f"group {group!r}, rollout {rollout!r}"

    def _where(self, row: int) -> str:
        step = "" if self.step is None else f", step {int(self.step[row])}"
        return f"{self._name(int(self.member[row]))}{step}"


def _ids(name: str, values: Values) -> tuple[Ints, list[Any]]:
    numbers, known = numbered(name, values)
    for id in known:
        if id is None or id != id:
            raise GroupError(f"{name}: there is a row without, got {id!r}")
    return numbers, list(known)


WHOLE = "an integer below 2^62"
_NO_ANCHOR = (None, "", SUCCESS, FAILURE)
_warned: set[str] = set()


def _warn(kind: str, text: str) -> None:
    """Warn the caller of what has called `Table.read`, once of each kind."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(text, stacklevel=5)
