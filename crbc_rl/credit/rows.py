"""Credit for other trainers: from rows, one per environment step, with any ids and in any order.

Public trainers copy, repeat, drop and reorder rows to fill their batches. A closure over such rows is silently wrong.
So every rollout says how many steps the environment counted, and a row that is lost or repeated is an error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import INVALID, GroupError, InternedRollouts
from crbc_rl.credit.api import Floats, Method, advantages_interned, check_options
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.rewards import Reward
from crbc_rl.credit.scores import is_score

Ints = NDArray[np.int64]

Column = Any
"""One value per row: a list, a tuple, a numpy array or a torch tensor."""


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
    `group`, `rollout` (within its group), `anchor` and `action` are any hashable ids. `step` counts from 0. `length`
    is the number of steps of the row's rollout as the environment counted them. `valid` says whether the reply was
    well formed; by default the action is not `anchors.INVALID`. `reward` is the environment's own. `final_anchor`
    is the anchor after the rollout's last step, or None. `score` is the rollout's graded outcome in [0, 1], and
    `scores` a value per step from a model or a judge, for the method "scores", or a function as that method takes it.

    `group_size`: the rollouts of every group. Without it, nothing tells of a rollout of which every row is lost.

    `earns`: what a step earns for the method, "outcome", "score" or "step". It is the option `reward` of
    `credit.advantages`, which is a column here.

    `scale`: credit has no fixed size. Under the defaults of "crbc" one success among eight rollouts gives advantages
    near 16, since the step term has weight 5 and is divided by a small deviation. A trainer that does not normalise
    what it is given may want 0.1.

    Raises `GroupError` that names group, rollout and step of a row that is lost, repeated or inconsistent, and
    `CreditError` for an unknown method or option, and for a score that is no finite number.
    """
    if isinstance(reward, str):
        raise CreditError(f"reward is a column here, the environment's own rewards: say earns={reward!r}")
    given = {"scores": scores, "reward": earns}
    options |= {name: value for name, value in given.items() if value is not None}
    check_options(method, options)
    columns = {
        "group": group,
        "rollout": rollout,
        "step": step,
        "anchor": anchor,
        "action": action,
        "success": success,
        "length": length,
        "valid": valid,
        "reward": reward,
        "final_anchor": final_anchor,
        "truncated": truncated,
        "score": score,
    }
    table = _Table({name: _values(name, column) for name, column in columns.items() if column is not None})
    table.check_sizes(group_size)
    if scores is not None:
        options["scores"] = scores if callable(scores) else table.scores(_values("scores", scores))
    credits = np.empty(len(table.order))
    credits[table.order] = advantages_interned(table.interned(), method, **options)
    return credits * scale


def per_token(advantages: Any, mask: Any) -> Any:
    """One advantage per row, (B,), as one per token, (B, T): its row's where `mask` (B, T) is 1, and 0 elsewhere.

    With a torch mask the result is a float32 tensor on the mask's device, otherwise a float64 array. Raises
    `GroupError` if the shapes do not fit.
    """
    values = _array(advantages)
    if len(getattr(mask, "shape", ())) != 2 or values.shape != tuple(mask.shape[:1]):
        raise GroupError(
            f"per_token: (B,) advantages and a (B, T) mask are wanted, got {values.shape} and "
            f"{tuple(getattr(mask, 'shape', ()))}"
        )
    if hasattr(mask, "new_tensor"):
        real = (mask != 0).float()
        return real * real.new_tensor(values.tolist())[:, None]
    return np.where(np.asarray(mask) != 0, values[:, None], 0.0)


class _Table:
    """Rows and where they belong. `order` (n,) are the caller's row numbers by group, rollout and step."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.rows = len(columns["group"])
        if not self.rows:
            raise GroupError("no rows given")
        columns.setdefault("truncated", [False] * self.rows)
        self.columns = {name: self.column(name, values) for name, values in columns.items()}
        self.group, _ = _numbered("group", columns["group"])
        member, ids = _numbered("rollout", zip(columns["group"], columns["rollout"], strict=True))
        first = np.unique(member, return_index=True)[1]
        by_group = np.argsort(self.group[first], kind="stable")
        self.ids, self.first = [ids[i] for i in by_group.tolist()], first[by_group]
        self.member: Ints = np.argsort(by_group)[member]
        self.step = _integers("step", columns["step"])
        self.length: Ints = np.array(self._of_rollout("length", _integers("length", columns["length"]).tolist()))
        self.order: Ints = np.lexsort((self.step, self.member))
        self._check_rows()

    def column(self, name: str, values: list[Any]) -> list[Any]:
        if len(values) != self.rows:
            raise GroupError(f"{name}: {len(values)} values for the {self.rows} rows of group")
        return values

    def scores(self, values: list[Any]) -> Floats:
        """One score per row, in order. Raises `CreditError` that names a row whose score is no finite number."""
        for row, value in enumerate(self.column("scores", values)):
            if not is_score(value):
                raise CreditError(f"scores: {self._where(row)}: a score is a finite number, got {value!r}")
        return np.array(values, dtype=np.float64)[self.order]

    def interned(self) -> InternedRollouts:
        """The rollouts in order. Raises `GroupError` for rows that contradict each other."""
        order, given = self.order, self.columns
        numbers, anchors = self._anchors()
        actions = given["action"]
        valid = self._flags("valid") if "valid" in given else [action != INVALID for action in actions]
        executed = (action if ok else INVALID for action, ok in zip(actions, valid, strict=True))
        optional: dict[str, Any] = {}
        if "reward" in given:
            optional["reward"] = np.array(given["reward"], dtype=np.float64)[order]
        if "score" in given:
            optional["score"] = np.array(self._of_rollout("score", given["score"]), dtype=np.float64)
        if "final_anchor" in given:
            finals = self._of_rollout("final_anchor", given["final_anchor"])
            keys = zip(self.group[self.first].tolist(), finals, strict=True)
            optional["final_anchor"] = np.array([anchors.get(key, -1) for key in keys])
        return InternedRollouts(
            rollout=self.member[order],
            step=self.step[order],
            length=self.length,
            group=self.group[self.first],
            anchor=numbers[order],
            action=_numbered("action", executed)[0][order],
            valid=np.array(valid)[order],
            **self._outcomes(),
            **optional,
        )

    def check_sizes(self, group_size: int | None) -> None:
        """Raise `GroupError` for the first group without `group_size` rollouts."""
        group = self.group[self.first]
        sizes = np.bincount(group)[group]
        other = np.flatnonzero(sizes != group_size)
        if group_size is not None and len(other):
            name, _ = self.ids[other[0]]
            raise GroupError(
                f"group {name!r}: rows of {sizes[other[0]]} rollouts are there, of {group_size} in a group"
            )

    def _check_rows(self) -> None:
        """Raise `GroupError` for the first row that is repeated, does not exist, or is lost."""
        member, step = self.member[self.order], self.step[self.order]
        twice = np.flatnonzero((np.diff(member) == 0) & (np.diff(step) == 0))
        if len(twice):
            rows = self.order[twice[0] : twice[0] + 2].tolist()
            raise GroupError(f"{self._where(rows[0])} is there twice, in rows {rows[0]} and {rows[1]}")
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
        numbers, keys = _numbered("anchor", zip(self.group.tolist(), self.columns["anchor"], strict=True))
        for number, (_, anchor) in enumerate(keys):
            if anchor is None or anchor == "":
                row = int(np.flatnonzero(numbers == number)[0])
                raise GroupError(f"{self._where(row)} has no anchor (got {anchor!r})")
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
        return numbers, {key: i for i, key in enumerate(keys)}

    def _outcomes(self) -> dict[str, Any]:
        success, truncated = (np.array(self._of_rollout(name, self._flags(name))) for name in ("success", "truncated"))
        both = np.flatnonzero(success & truncated)
        if len(both):
            raise GroupError(f"{self._name(int(both[0]))}: it cannot both succeed and be truncated")
        return {"success": success, "truncated": truncated}

    def _flags(self, name: str) -> list[bool]:
        values = self.columns[name]
        if not all(value in (0, 1) for value in values):
            row = next(row for row, value in enumerate(values) if value not in (0, 1))
            graded = "; a graded outcome is a score" if name == "success" else ""
            raise GroupError(f"{self._where(row)}: {name} must be binary, got {values[row]!r}{graded}")
        return [bool(value) for value in values]

    def _of_rollout(self, name: str, values: list[Any]) -> list[Any]:
        """The values of a column by rollout. Raises `GroupError` where the rows of a rollout differ."""
        known = [values[row] for row in self.first.tolist()]
        spread = [known[member] for member in self.member.tolist()]
        if spread != values:
            row = next(row for row, (one, other) in enumerate(zip(values, spread, strict=True)) if one != other)
            raise GroupError(
                f"{self._where(row)}: {name} is {values[row]!r}, and {spread[row]!r} in another row of that rollout"
            )
        return known

    def _name(self, member: int) -> str:
        group, rollout = self.ids[member]
        return f"group {group!r}, rollout {rollout!r}"

    def _where(self, row: int) -> str:
        return f"{self._name(int(self.member[row]))}, step {int(self.step[row])}"


def _values(name: str, column: Column) -> list[Any]:
    """A column as a list of plain values. Raises `GroupError` for what has no length, such as a generator."""
    if hasattr(column, "tolist"):  # numpy, torch and pandas
        column = column.tolist()
    if isinstance(column, str | bytes) or not isinstance(column, list | tuple):
        raise GroupError(f"{name}: a list, a tuple, an array or a tensor is wanted, got {type(column).__name__}")
    return [value.item() if hasattr(value, "item") else value for value in column]  # numpy's and torch's single values


def _array(values: Any) -> Floats:
    return np.asarray(_values("advantages", values), dtype=np.float64)


def _numbered(name: str, ids: Iterable[Hashable]) -> tuple[Ints, list[Any]]:
    """The number of every id in order of first appearance, and the ids by number."""
    known: dict[Hashable, int] = {}
    try:
        numbers = [known.setdefault(id, len(known)) for id in ids]
    except TypeError as error:
        raise GroupError(f"{name}: ids must be hashable, such as numbers and texts ({error})") from error
    return np.array(numbers, dtype=np.int64), list(known)


def _integers(name: str, values: list[Any]) -> Ints:
    if set(map(type, values)) != {int} or not all(-_HUGE < value < _HUGE for value in values):
        row, value = next((i, v) for i, v in enumerate(values) if type(v) is not int or not -_HUGE < v < _HUGE)
        raise GroupError(f"{name}: row {row} has {value!r}; an integer is wanted")
    return np.array(values, dtype=np.int64)


_HUGE = 2**62
