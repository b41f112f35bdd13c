"""The recorder of a group: its steps and transition counts as integers, while the rollout runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from anchors import FAILURE, INVALID, SUCCESS, InternedRollouts, TransitionCounts
from anchors.columns import places

_BOUNDARY = {-1: SUCCESS, -2: FAILURE}
_SUCCESS, _FAILURE = _BOUNDARY


class ActionNumbers(dict[str, int]):
    """The number of each executed action, in order of first appearance. `INVALID` is always 0."""

    def __init__(self) -> None:
        super().__init__({INVALID: 0})

    def __missing__(self, action: str) -> int:
        self[action] = len(self)
        return self[action]


class GroupRecorder:
    """Records the steps and transition counts of one group. A step costs a few dictionary look-ups.

    Anchors are numbered in order of first appearance, so the initial anchor is 0. All groups of an
    environment share `actions`, the numbering of actions.
    """

    def __init__(self, task_id: str, anchor: str, label: str, size: int, actions: ActionNumbers) -> None:
        self.task_id = task_id
        self.actions = actions
        self.anchors: dict[str, int] = {anchor: 0}
        self.labels = [label]
        self.current = [0] * size
        """The current anchor of each member."""
        self.visits: list[list[tuple[int, int, float]]] = [[] for _ in range(size)]
        """(anchor, action, reward) of every step, by member."""
        self.success = [False] * size
        self.score = [0.0] * size
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
        score: float,
    ) -> None:
        """Add one step of `member` (0 to size - 1). `anchor` is its anchor after the step."""
        before, number = self.current[member], self.actions[action]
        after = self.anchors.setdefault(anchor, len(self.labels))
        if after == len(self.labels):
            self.labels.append(label)
        self.current[member] = after
        self.visits[member].append((before, number, reward))
        over = terminated or truncated
        if over:
            self.success[member], self.truncated[member], self.score[member] = success, truncated, score
        self.counts[before, number, (_SUCCESS if success else _FAILURE) if over else after] += 1

    def transition_counts(self) -> TransitionCounts:
        """The merged N(s, a, x) so far, with anchors and actions by name."""
        anchors, actions = list(self.anchors), list(self.actions)
        return TransitionCounts(
            {
                (anchors[s], actions[a], anchors[x] if x >= 0 else _BOUNDARY[x]): n
                for (s, a, x), n in self.counts.items()
            }
        )


def interned(recorders: Sequence[GroupRecorder]) -> InternedRollouts:
    """The rollouts of several groups as one table. Every member must have ended."""
    sizes = [len(recorder.anchors) for recorder in recorders]
    offsets = np.cumsum([0, *sizes[:-1]])
    names = [name for recorder in recorders for name in recorder.anchors]
    length = np.array([len(visits) for recorder in recorders for visits in recorder.visits], dtype=np.int64)
    group = np.repeat(np.arange(len(recorders)), [len(recorder.visits) for recorder in recorders])
    rows = np.array(list(_rows(recorders)), dtype=np.float64).reshape(-1, 3)
    anchor, action = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    final = np.array([anchor for recorder in recorders for anchor in recorder.current], dtype=np.int64) + offsets[group]
    return InternedRollouts(
        **places(length),
        anchor=anchor + np.repeat(offsets[group], length),
        action=action,
        group=group,
        success=np.array([won for recorder in recorders for won in recorder.success], dtype=np.bool_),
        score=np.array([score for recorder in recorders for score in recorder.score], dtype=np.float64),
        truncated=np.array([cut for recorder in recorders for cut in recorder.truncated], dtype=np.bool_),
        valid=action != 0,
        reward=rows[:, 2],
        final_anchor=final,
        anchor_names=names,
        anchor_labels=[label for recorder in recorders for label in recorder.labels],
        action_names=list(recorders[0].actions),
        final_names=[names[i] for i in final.tolist()],
        tasks=[recorder.task_id for recorder in recorders],
    )


def _rows(recorders: Iterable[GroupRecorder]) -> Iterable[tuple[int, int, float]]:
    for recorder in recorders:
        for visits in recorder.visits:
            yield from visits
