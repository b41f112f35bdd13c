"""What a group has done so far, kept as integers while it is rolling out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from anchors import FAILURE, INVALID, SUCCESS, InternedRollouts, Rollout, RolloutGroup, Step, TransitionCounts

_BOUNDARY = {-1: SUCCESS, -2: FAILURE}
_SUCCESS, _FAILURE = _BOUNDARY


class ActionNumbers(dict[str, int]):
    """Executed actions by number, in order of first appearance; `INVALID` is always 0."""

    def __init__(self) -> None:
        super().__init__({INVALID: 0})

    def __missing__(self, action: str) -> int:
        self[action] = len(self)
        return self[action]


class Ledger:
    """One group's steps and transition counts; a step costs a few dictionary look-ups.

    Anchors are numbered in order of first appearance, so the initial anchor is 0. `actions` is the
    numbering that all groups of an environment share.
    """

    def __init__(self, task_id: str, anchor: str, label: str, size: int, actions: ActionNumbers) -> None:
        self.task_id = task_id
        self.actions = actions
        self.anchors: dict[str, int] = {anchor: 0}
        self.labels = [label]
        self.here = [0] * size
        """The anchor each member stands at."""
        self.visits: list[list[tuple[int, int, float]]] = [[] for _ in range(size)]
        """(anchor, action, reward) of each member's steps."""
        self.success = [False] * size
        self.truncated = [False] * size
        self.counts: Counter[tuple[int, int, int]] = Counter()

    def add(
        self,
        member: int,
        action: str,
        reward: float,
        anchor: str,
        label: str,
        terminated: bool,
        truncated: bool,
        success: bool,
    ) -> None:
        """One more step of `member` (0 to size - 1), which leaves it at `anchor`."""
        before, number = self.here[member], self.actions[action]
        after = self.anchors.setdefault(anchor, len(self.labels))
        if after == len(self.labels):
            self.labels.append(label)
        self.here[member] = after
        self.visits[member].append((before, number, reward))
        over = terminated or truncated
        if over:
            self.success[member], self.truncated[member] = success, truncated
        self.counts[before, number, (_SUCCESS if success else _FAILURE) if over else after] += 1

    def transition_counts(self) -> TransitionCounts:
        """The merged N(s, a, x) so far, by name."""
        anchors, actions = list(self.anchors), list(self.actions)
        return TransitionCounts(
            {
                (anchors[s], actions[a], anchors[x] if x >= 0 else _BOUNDARY[x]): n
                for (s, a, x), n in self.counts.items()
            }
        )

    def group(self) -> RolloutGroup:
        """The rollouts by name; every member must have ended."""
        anchors, actions, labels = list(self.anchors), list(self.actions), self.labels
        return RolloutGroup(
            (
                Rollout(
                    [Step(anchors[s], actions[a], reward, labels[s]) for s, a, reward in visits],
                    self.success[i],
                    self.truncated[i],
                    final_anchor=anchors[self.here[i]],
                )
                for i, visits in enumerate(self.visits)
            ),
            self.task_id,
        )


def interned(ledgers: Sequence[Ledger]) -> InternedRollouts:
    """The rollouts of several groups as integers, ready for credit; every member must have ended."""
    sizes = [len(ledger.anchors) for ledger in ledgers]
    offsets = np.cumsum([0, *sizes[:-1]])
    length = np.array([len(visits) for ledger in ledgers for visits in ledger.visits], dtype=np.int64)
    group = np.repeat(np.arange(len(ledgers)), [len(ledger.visits) for ledger in ledgers])
    rows = np.array(list(_rows(ledgers)), dtype=np.float64).reshape(-1, 3)
    anchor, action = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    return InternedRollouts(
        rollout=np.repeat(np.arange(len(length)), length),
        step=np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length),
        anchor=anchor + np.repeat(offsets[group], length),
        action=action,
        group=group,
        length=length,
        success=np.array([won for ledger in ledgers for won in ledger.success], dtype=np.bool_),
        valid=action != 0,
        reward=rows[:, 2],
        final_anchor=np.array([here for ledger in ledgers for here in ledger.here], dtype=np.int64) + offsets[group],
        anchor_names=[name for ledger in ledgers for name in ledger.anchors],
        action_names=list(ledgers[0].actions),
    )


def _rows(ledgers: Iterable[Ledger]) -> Iterable[tuple[int, int, float]]:
    for ledger in ledgers:
        for visits in ledger.visits:
            yield from visits
