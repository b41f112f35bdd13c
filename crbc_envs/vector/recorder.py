"""The recorder of the groups: their steps and transition counts as columns of integers, while the rollouts run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import FAILURE, INVALID, SUCCESS, InternedRollouts, TransitionCounts
from anchors.columns import frozen, places
from crbc_envs.core import Infos, Outcome

_BOUNDARY = {-1: SUCCESS, -2: FAILURE}
_SUCCESS, _FAILURE = _BOUNDARY

FIRST_WIDTH = 16
"""Room for so many steps a member at first. It doubles when it is used up."""


class Numbers(dict[str, int]):
    """The number of each name, in order of first appearance: looking a new name up gives it the next number."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class Recorder:
    """Records the steps of `num_groups` groups of `group_size` members. A step of all members costs a few columns.

    The anchors of a group are numbered in order of first appearance, so its initial anchor is 0. All groups share the
    numbering of actions, in which `INVALID` is 0. What is recorded is copied: the caller may change its columns.
    """

    def __init__(self, num_groups: int, group_size: int) -> None:
        members = num_groups * group_size
        self.group = np.repeat(np.arange(num_groups), group_size)
        self.actions = Numbers({INVALID: 0})
        self.tasks = [""] * num_groups
        self.anchors = [Numbers() for _ in range(num_groups)]
        self.labels: list[list[str]] = [[] for _ in range(num_groups)]
        self._labelled = np.zeros(num_groups, dtype=np.int64)
        """The number of labels of each group."""
        self._current = np.zeros(members, dtype=np.int64)
        """The current anchor of each member."""
        self._length = np.zeros(members, dtype=np.int64)
        # Step t of member m is at [m, t]. The anchor is the one at which the action was taken.
        self._anchor = np.zeros((members, FIRST_WIDTH), dtype=np.int64)
        self._action = np.zeros((members, FIRST_WIDTH), dtype=np.int64)
        self._reward = np.zeros((members, FIRST_WIDTH), dtype=np.float64)
        self._over = np.zeros(members, dtype=np.bool_)
        self._success = np.zeros(members, dtype=np.bool_)
        self._truncated = np.zeros(members, dtype=np.bool_)
        self._score = np.zeros(members, dtype=np.float64)

    def begin(self, groups: Sequence[int], infos: Infos) -> None:
        """Forget some groups and begin them anew. `infos` has the members of these groups, in order."""
        size = len(self.group) // len(self.tasks)
        if len(groups) == len(self.tasks):
            self.actions = Numbers({INVALID: 0})
        for place, g in enumerate(groups):
            first = place * size
            self.tasks[g] = infos["task_id"][first]
            self.anchors[g] = Numbers({infos["anchor"][first]: 0})
            self.labels[g] = [infos["label"][first]]
        self._labelled[groups] = 1
        for column in (self._current, self._length, self._score, self._over, self._success, self._truncated):
            column.reshape(len(self.tasks), size)[groups] = 0

    def add(self, members: NDArray[np.intp], outcome: Outcome) -> None:
        """Add one step of each of `members`."""
        infos, step, groups = outcome.infos, self._length[members], self.group[members]
        if step.max() == self._anchor.shape[1]:
            self._anchor, self._action, self._reward = map(_wider, (self._anchor, self._action, self._reward))
        numbers = map(self.anchors.__getitem__, groups.tolist())
        after = np.fromiter(map(getitem, numbers, infos["anchor"].tolist()), np.int64, len(members))
        self._anchor[members, step] = self._current[members]
        action_ids = map(self.actions.__getitem__, infos["action"].tolist())
        self._action[members, step] = np.fromiter(action_ids, np.int64, len(members))
        self._reward[members, step] = outcome.rewards
        self._current[members] = after
        self._length[members] = step + 1
        for i in (after >= self._labelled[groups]).nonzero()[0].tolist():
            labels = self.labels[groups[i]]
            if after[i] == len(labels):  # else another member of this step was there first
                labels.append(infos["label"][i])
                self._labelled[groups[i]] += 1
        over = outcome.terminated | outcome.truncated
        if over.any():
            ended = members[over]
            self._over[ended] = True
            self._success[ended] = infos["success"][over]
            self._truncated[ended] = outcome.truncated[over]
            self._score[ended] = infos["score"][over]

    def transition_counts(self) -> list[TransitionCounts]:
        """The merged N(s, a, x) of each group so far, with anchors and actions by name."""
        taken = self._taken()
        after = np.concatenate([self._anchor[:, 1:], self._current[:, None]], axis=1)
        last = np.flatnonzero(self._length), self._length[self._length > 0] - 1
        boundary = np.where(self._success, _SUCCESS, _FAILURE)
        after[last] = np.where(self._over, boundary, self._current)[last[0]]
        group, before, action, after = (
            table.T[taken.T]  # in the order of time
            for table in (np.broadcast_to(self.group[:, None], taken.shape), self._anchor, self._action, after)
        )
        # One number for each transition. Below two million steps it fits 64 bits, whatever happened.
        anchors, actions = max(map(len, self.anchors)), len(self.actions)
        code = ((group * anchors + before) * actions + action) * (anchors + 2) + after + 2
        _, first, times = np.unique(code, return_index=True, return_counts=True)
        order = np.argsort(first)
        rows = first[order]
        columns = (group[rows], before[rows], action[rows], after[rows], times[order])
        counts: list[dict[tuple[str, str, str], int]] = [{} for _ in self.anchors]
        names, action_ids = [list(numbers) for numbers in self.anchors], list(self.actions)
        for g, s, a, x, n in zip(*(column.tolist() for column in columns), strict=True):
            counts[g][names[g][s], action_ids[a], names[g][x] if x >= 0 else _BOUNDARY[x]] = n
        return [TransitionCounts(of_group) for of_group in counts]

    def _taken(self) -> NDArray[np.bool_]:
        """The mask of the steps that were taken, (members, width)."""
        return np.arange(self._anchor.shape[1]) < self._length[:, None]

    def interned(self) -> InternedRollouts:
        """The rollouts of all groups as one table. Every member must have ended."""
        sizes = [len(numbers) for numbers in self.anchors]
        offset = np.cumsum([0, *sizes[:-1]])[self.group]
        names = list(chain.from_iterable(self.anchors))
        length, taken = self._length, self._taken()
        action, final = self._action[taken], self._current + offset
        return InternedRollouts(
            **places(length),
            anchor=self._anchor[taken] + np.repeat(offset, length),
            action=action,
            group=self.group,
            success=self._success,
            score=self._score,
            truncated=self._truncated,
            valid=frozen(action != 0),
            reward=frozen(self._reward[taken]),
            final_anchor=final,
            anchor_names=names,
            anchor_labels=list(chain.from_iterable(self.labels)),
            action_names=list(self.actions),
            final_names=[names[i] for i in final.tolist()],
            tasks=list(self.tasks),
        )


def _wider(table: NDArray[Any]) -> NDArray[Any]:
    """The table with room for twice as many steps."""
    return np.concatenate([table, np.zeros_like(table)], axis=1)
