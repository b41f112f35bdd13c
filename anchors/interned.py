"""Complete rollouts as integers: one table with a row per step. Credit uses it without any string."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchors.columns import (
    Floats,
    Ints,
    check_actions,
    check_anchors,
    check_ends,
    check_groups,
    check_order,
    chosen,
    flags,
    floats,
    frozen,
    integers,
    look_up,
    places,
    private,
    renumber,
    size_of,
    sum_by,
)
from anchors.rollout import INVALID, GroupError, Rollout, RolloutGroup, Step


@dataclass(frozen=True, slots=True, eq=False)
class InternedRollouts:
    """n steps of m rollouts, in order: all groups of an update, with anchors and actions as numbers.

    Columns per step (n,): `rollout` (0, 1, ... in order), `anchor`, `action`, `valid` (the reply was well formed; by
    default all are), `reward` (the environment's own; by default 0). Columns per rollout (m,): `group` (0, 1, ... in
    order), `length`, `success`, `score` (the task score in [0, 1]; by default the success), `truncated` (by default
    none is), `final_anchor` (`Rollout.final_anchor` as a number, or -1 if unknown, which is the default).

    An anchor number belongs to one group. All malformed replies share one action number, like `INVALID` among
    strings. The given numbers may have gaps. They are renumbered without gaps, in order, and a final anchor from
    which no step was taken becomes -1. Names are for people and optional: `anchor_names` and `anchor_labels` (readable
    forms) by anchor number, `action_names` by action number, `tasks` by group. `final_names` has the name of each
    rollout's final anchor, also if the anchor has no number. Columns may be lists, numpy arrays or torch tensors.

    The arguments `rollout` and `step` give the position of each row, both counted from 0. `length` is the number of
    steps that the environment counted. With them, a lost, repeated or moved row is detected: public trainers copy and
    reorder rows for their batches, and a closure over such rows is silently wrong. Raises a `GroupError` that names
    the rollout and the step.

    Computed from these: `num_groups`, `num_anchors`, `num_actions`; `starts` (m,), the row of every rollout's first
    step; `success_rate` (number of groups,), the fraction of each group's rollouts that succeed.

    The columns are read-only, and changing the arguments afterwards does not change them.
    """

    rollout: Ints
    anchor: Ints
    action: Ints
    valid: NDArray[np.bool_]
    reward: Floats
    group: Ints
    length: Ints
    success: NDArray[np.bool_]
    score: Floats
    truncated: NDArray[np.bool_]
    final_anchor: Ints
    anchor_names: Sequence[str] | None
    anchor_labels: Sequence[str] | None
    action_names: Sequence[str] | None
    final_names: Sequence[str] | None
    tasks: Sequence[str] | None
    num_groups: int
    num_anchors: int
    num_actions: int
    starts: Ints
    success_rate: Floats

    def __init__(
        self,
        *,
        rollout: ArrayLike,
        step: ArrayLike,
        anchor: ArrayLike,
        action: ArrayLike,
        group: ArrayLike,
        length: ArrayLike,
        success: ArrayLike,
        valid: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        score: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        final_anchor: ArrayLike | None = None,
        anchor_names: Sequence[str] | None = None,
        anchor_labels: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        final_names: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> None:
        rollout, group, length, success = (private(column) for column in (rollout, group, length, success))
        valid, reward, score, truncated = (private(column) for column in (valid, reward, score, truncated))
        rows, members = size_of(anchor), size_of(length)
        if not members:
            raise GroupError("no rollouts given")
        lengths = integers("length", length, members, least=1)
        owner = integers("rollout", rollout, rows)
        check_order(owner, integers("step", step, rows), lengths)
        groups = integers("group", group, members)
        check_groups(groups)
        final = integers("final_anchor", np.full(members, -1) if final_anchor is None else final_anchor, members, -1)
        known, numbers = renumber(integers("anchor", anchor, rows))
        known_actions, actions = renumber(integers("action", action, rows))
        won = flags("success", success, members)
        columns: dict[str, Any] = {
            "rollout": owner,
            "anchor": numbers,
            "action": actions,
            "valid": flags("valid", np.ones(rows, np.bool_) if valid is None else valid, rows),
            "reward": floats("reward", np.zeros(rows) if reward is None else reward, rows),
            "group": groups,
            "length": lengths,
            "success": won,
            "score": won.astype(np.float64) if score is None else floats("score", score, members),
            "truncated": flags("truncated", np.zeros(members, np.bool_) if truncated is None else truncated, members),
            "final_anchor": look_up(final, known),
            "anchor_names": chosen(anchor_names, known),
            "anchor_labels": chosen(anchor_labels, known),
            "action_names": chosen(action_names, known_actions),
            "final_names": None if final_names is None else tuple(final_names),
            "tasks": None if tasks is None else tuple(tasks),
            "num_groups": int(groups[-1]) + 1,
            "num_anchors": len(known),
            "num_actions": len(known_actions),
            "starts": np.cumsum(lengths) - lengths,
            "success_rate": np.bincount(groups, won) / np.bincount(groups),
        }
        for name, column in columns.items():
            object.__setattr__(self, name, frozen(column) if isinstance(column, np.ndarray) else column)
        check_anchors(numbers, owner, groups, lengths, columns["final_anchor"])
        check_actions(actions, columns["valid"], self.where)
        check_ends(won, columns["truncated"])

    # ---- conversions -------------------------------------------------------------------------

    @classmethod
    def from_groups(cls, groups: Sequence[RolloutGroup]) -> InternedRollouts:
        """Number the anchors of each of `groups` and the actions of all groups. Only this method reads strings. Raises
        `GroupError` for an empty list, and for a reward that is no number."""
        if not groups:
            raise GroupError("no groups given")
        names: list[str] = []
        labels: list[str] = []
        actions: dict[str, int] = {}
        anchor_of_step: list[int] = []
        final_anchor: list[int] = []
        for group in groups:
            offset = len(names)
            anchors: dict[str, int] = {}
            for rollout in group.rollouts:
                for step in rollout.steps:
                    anchor_of_step.append(offset + anchors.setdefault(step.anchor, len(anchors)))
                    if len(anchors) > len(labels) - offset:
                        labels.append(step.label)
            # A final anchor from which the group took no step has no number.
            final_anchor += [offset + anchors.get(r.final_anchor or "", -1 - offset) for r in group.rollouts]
            names.extend(anchors)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        steps = [step for rollout in rollouts for step in rollout.steps]
        action = np.array([actions.setdefault(s.action, len(actions)) for s in steps], dtype=np.int64)
        return cls(
            **places(np.array([len(rollout.steps) for rollout in rollouts], dtype=np.int64)),
            anchor=np.array(anchor_of_step, dtype=np.int64),
            action=action,
            group=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
            success=np.array([rollout.success for rollout in rollouts], dtype=np.bool_),
            score=np.array([rollout.score for rollout in rollouts], dtype=np.float64),
            truncated=np.array([rollout.truncated for rollout in rollouts], dtype=np.bool_),
            valid=action != actions.get(INVALID, -1),
            reward=_rewards(steps),
            final_anchor=np.array(final_anchor, dtype=np.int64),
            anchor_names=names,
            anchor_labels=labels,
            action_names=list(actions),
            final_names=[rollout.final_anchor or "" for rollout in rollouts],
            tasks=[group.task for group in groups],
        )

    def groups(self) -> list[RolloutGroup]:
        """The same rollouts by name, for people. Raises `GroupError` if they were interned without names."""
        names, labels, actions, finals, tasks = self.names()
        columns = zip(self.anchor.tolist(), self.action.tolist(), self.reward.tolist(), strict=True)
        steps = [Step(names[s], actions[a], reward, labels[s]) for s, a, reward in columns]
        groups: list[list[Rollout]] = [[] for _ in range(self.num_groups)]
        for i, (start, end) in enumerate(zip(self.starts.tolist(), np.cumsum(self.length).tolist(), strict=True)):
            won, cut = bool(self.success[i]), bool(self.truncated[i])
            groups[self.group[i]].append(Rollout(steps[start:end], won, cut, finals[i] or None, float(self.score[i])))
        return [RolloutGroup(rollouts, task) for rollouts, task in zip(groups, tasks, strict=True)]

    def names(self) -> tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[str], Sequence[str]]:
        """Anchors and labels by number, actions by number, the final anchor of each rollout, the task of each group.

        A missing name is "". Raises `GroupError` if the rollouts were interned without names.
        """
        anchors, actions = self.anchor_names, self.action_names
        if anchors is None or actions is None:
            raise GroupError("these rollouts were interned without the names of their anchors and actions")
        labels = self.anchor_labels or [""] * len(anchors)
        finals = self.final_names or [anchors[s] if s >= 0 else "" for s in self.final_anchor.tolist()]
        return anchors, labels, actions, finals, self.tasks or [""] * self.num_groups

    @classmethod
    def concat(cls, parts: Sequence[InternedRollouts]) -> InternedRollouts:
        """The groups of all `parts`, one part after the other.

        Names are not read: numbers are shifted, and all malformed replies share one action.
        """
        anchor, final, action, group = [], [], [], []
        anchors, actions, groups = 0, 1, 0
        for part in parts:
            anchor.append(part.anchor + anchors)
            final.append(np.where(part.final_anchor < 0, -1, part.final_anchor + anchors))
            action.append(np.where(part.valid, part.action + actions, 0))
            group.append(part.group + groups)
            anchors += part.num_anchors
            actions += part.num_actions
            groups += part.num_groups
        named = all(part.action_names is not None for part in parts)
        columns: dict[str, Any] = {
            name: frozen(np.concatenate([getattr(part, name) for part in parts])) for name in _PLAIN
        }
        columns |= {name: _joined([getattr(part, name) for part in parts]) for name in _NAMES}
        columns |= places(np.concatenate([part.length for part in parts]))
        return cls(
            **columns,
            anchor=np.concatenate(anchor),
            action=np.concatenate(action),
            group=np.concatenate(group),
            final_anchor=np.concatenate(final),
            action_names=[INVALID, *(name for part in parts for name in part.action_names or ())] if named else None,
        )

    def select(self, groups: Sequence[int]) -> InternedRollouts:
        """The rollouts of some `groups`, by number, as groups 0, 1, ... in the given order."""
        first = np.searchsorted(self.group, np.arange(self.num_groups + 1))
        members = np.concatenate([np.arange(first[g], first[g + 1]) for g in groups])
        rows = self.rows_of(groups)
        columns: dict[str, Any] = {name: frozen(getattr(self, name)[rows]) for name in _PER_STEP}
        columns |= {name: getattr(self, name)[members] for name in _PER_ROLLOUT}
        finals = self.final_names
        columns |= places(self.length[members])
        return InternedRollouts(
            **columns,
            group=np.repeat(np.arange(len(groups)), [first[g + 1] - first[g] for g in groups]),
            anchor_names=self.anchor_names,
            anchor_labels=self.anchor_labels,
            action_names=self.action_names,
            final_names=None if finals is None else [finals[i] for i in members.tolist()],
            tasks=None if self.tasks is None else [self.tasks[g] for g in groups],
        )

    # ---- values per step and rollout ----------------------------------------------------------

    @property
    def step(self) -> Ints:
        """The number of every step in its rollout, from 0, shape (n,)."""
        return np.arange(len(self.rollout)) - self.starts[self.rollout]

    @property
    def remaining(self) -> Ints:
        """T_i - t + 1 for every step, (n,): the number of steps until the rollout ends, including this one."""
        ends = np.cumsum(self.length)
        return ends[self.rollout] - np.arange(len(self.rollout))

    @property
    def goes_on(self) -> NDArray[np.bool_]:
        """The truncated rollouts whose final anchor some rollout of the group left, shape (m,)."""
        return self.truncated & (self.final_anchor >= 0)

    @property
    def returns(self) -> Floats:
        """The sum of the environment's own rewards over each rollout, shape (m,)."""
        return sum_by(self.rollout, self.reward, len(self.length))

    def rows_of(self, groups: Sequence[int]) -> Ints:
        """The numbers of the rows of some `groups`, group by group, shape (steps of these groups,)."""
        ends = np.append(self.starts, len(self.rollout))[np.searchsorted(self.group, np.arange(self.num_groups + 1))]
        return np.concatenate([np.arange(ends[g], ends[g + 1]) for g in groups])

    def split(self, per_step: Floats) -> list[list[Floats]]:
        """Cut `per_step` (n,), one value per step, into one array (length,) per rollout, in one list per group."""
        groups: list[list[Floats]] = [[] for _ in range(self.num_groups)]
        ends = np.cumsum(self.length)
        for group, start, end in zip(self.group.tolist(), self.starts.tolist(), ends.tolist(), strict=True):
            groups[group].append(per_step[start:end])
        return groups

    def where(self, row: int) -> str:
        """The position of the step in `row` of the table, for people: "rollout 3, step 7"."""
        rollout = int(self.rollout[row])
        return f"rollout {rollout}, step {row - int(self.starts[rollout])}"


_PER_STEP = ("anchor", "action", "valid", "reward")
_PER_ROLLOUT = ("success", "score", "truncated", "final_anchor")
_PLAIN = ("valid", "reward", "success", "score", "truncated")
_NAMES = ("anchor_names", "anchor_labels", "final_names", "tasks")


def _rewards(steps: Sequence[Step]) -> Floats:
    """The rewards of all steps. Raises `GroupError` for one that is no number."""
    try:
        return np.array(array("d", [step.reward for step in steps]))  # NumPy alone reads texts and None
    except (OverflowError, TypeError, ValueError) as error:
        odd = next(s for s in steps if not isinstance(s.reward, Real) or not abs(s.reward) < 1e308)
        raise GroupError(
            f"action {odd.action!r} at anchor {odd.anchor}: a reward is a finite number, got {odd.reward!r}"
        ) from error


def _joined(parts: Sequence[Sequence[str] | None]) -> list[str] | None:
    """The names of all parts. None if one part has none."""
    known = [part for part in parts if part is not None]
    return [name for part in known for name in part] if len(known) == len(parts) else None
