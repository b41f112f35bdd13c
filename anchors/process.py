"""The empirical process of a rollout group: transition counts, P, mu, M and b (paper, eqs. 5 and 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors.columns import renumber, sum_by
from anchors.interned import InternedRollouts
from anchors.rollout import FAILURE, SUCCESS, GroupError, Rollout, RolloutGroup

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_BOUNDARIES = frozenset((SUCCESS, FAILURE))


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """A sparse matrix of `shape` (rows, columns) as k triplets: `row`, `col` and the value, `data`, (k,) each. No entry
    is listed twice. `matrix @ vector` takes (columns,) and gives (rows,)."""

    row: Ints
    col: Ints
    data: NDArray[Any]
    shape: tuple[int, int]

    def __matmul__(self, vector: Floats) -> Floats:
        return sum_by(self.row, self.data * vector[self.col], self.shape[0])

    def toarray(self) -> NDArray[Any]:
        """The dense matrix (rows, columns), 0 where nothing is listed."""
        dense = np.zeros(self.shape, dtype=self.data.dtype)
        dense[self.row, self.col] = self.data
        return dense


class TransitionCounts:
    """N_g(s, a, x) as integers. They are merged with `+` and do not depend on the order of rollouts.

    `counts` maps (anchor, action, successor x) to a number; None: none yet. A successor is an anchor, `SUCCESS` or
    `FAILURE`. Raises `GroupError` for counts that are not positive integers (numpy's are taken too), and for a boundary
    name used as an anchor.
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[tuple[str, str, str], int] | None = None) -> None:
        self._counts = Counter(counts or {})
        for transition, count in self._counts.items():
            _check_anchor(transition)
            if type(count) is not int or count < 1:
                self._counts[transition] = _positive(transition, count)

    @classmethod
    def from_rollouts(cls, rollouts: Iterable[Rollout]) -> TransitionCounts:
        """The counts of all steps of `rollouts`. The last step of each leads to `SUCCESS` or `FAILURE`."""
        counts = cls()
        for rollout in rollouts:
            for step, after in pairwise(rollout.steps):
                counts._counts[step.anchor, step.action, after.anchor] += 1
            last = rollout.steps[-1]
            counts._counts[last.anchor, last.action, SUCCESS if rollout.success else FAILURE] += 1
        return counts

    def items(self) -> Iterable[tuple[tuple[str, str, str], int]]:
        """((anchor, action, successor), count) of every transition."""
        return self._counts.items()

    def copy(self) -> TransitionCounts:
        """Equal counts, which may be changed apart from these."""
        other = TransitionCounts()
        other._counts = self._counts.copy()
        return other

    def __add__(self, other: TransitionCounts) -> TransitionCounts:
        if not isinstance(other, TransitionCounts):
            return NotImplemented
        merged = self.copy()
        merged._counts.update(other._counts)
        return merged

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransitionCounts) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # mutable during a rollout

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def total(self) -> int:
        """The number of steps counted."""
        return self._counts.total()

    def process(self) -> EmpiricalProcess:
        """`EmpiricalProcess.from_counts` of these counts, with its errors."""
        return EmpiricalProcess.from_counts(self)

    def __repr__(self) -> str:
        return f"TransitionCounts({len(self)} transitions, {self.total} steps)"


def _check_anchor(transition: tuple[str, str, str]) -> None:
    if transition[0] in _BOUNDARIES:
        raise GroupError(f"transition ({', '.join(transition)}): a boundary name is used as an anchor")


def _positive(transition: tuple[str, str, str], count: object) -> int:
    """A count as an int; it may be one of numpy's."""
    if isinstance(count, int | np.integer) and not isinstance(count, bool) and count >= 1:
        return int(count)
    raise GroupError(f"transition ({', '.join(transition)}): a count is a positive integer, got {count!r}")


@dataclass(frozen=True, eq=False)
class EmpiricalProcess:
    """The empirical process of a group: integer counts and the frequencies they induce (section 4.1).

    With S = `num_anchors` anchors and L = `num_pairs` (anchor, action) pairs:

    `anchors`: S keys. `pairs`: L tuples (anchor index, action), sorted by anchor index. Both are computed on first
    use from `anchor_names` and `action_names` (by number; None: it is the number). Credit does not need them.
    `counts`: N(s, a, x), L x (S + 2) integers. The columns are the anchors, then success, then failure.
    `pair_anchor`, `pair_action` (L,): the anchor number and the action number of each pair.
    `rollouts`: the n steps behind the counts. `pair` (n,): the pair of each step. Both are None if the process was
    built from counts alone, which is enough for the full closure, but not for a finite depth.

    Several groups can form one process. Their anchors are kept apart, so M is block diagonal and one solve is enough
    for all of them.
    """

    counts: Sparse
    pair_anchor: Ints
    pair_action: Ints
    rollouts: InternedRollouts | None = None
    pair: Ints | None = None
    anchor_names: Sequence[str] | None = None
    action_names: Sequence[str] | None = None

    # ---- construction -------------------------------------------------------------------------

    @classmethod
    def from_group(cls, group: RolloutGroup) -> EmpiricalProcess:
        """The process of one `group`. Raises `GroupError` for a reward that is no number."""
        return cls.from_groups([group])

    @classmethod
    def from_groups(cls, groups: Sequence[RolloutGroup]) -> EmpiricalProcess:
        """The process of several `groups`. Anchors never match across groups. Raises `GroupError` for an empty list."""
        return cls.from_interned(InternedRollouts.from_groups(groups))

    @classmethod
    def from_interned(cls, rollouts: InternedRollouts) -> EmpiricalProcess:
        """The process of one update's `rollouts`. It reads no strings."""
        anchor, size = rollouts.anchor, rollouts.num_anchors
        successor = _successors(rollouts, np.where(rollouts.success, size, size + 1))
        counts, pair_anchor, pair_action, pair = _count(size, anchor, rollouts.action, successor)
        return cls(counts, pair_anchor, pair_action, rollouts, pair, rollouts.anchor_names, rollouts.action_names)

    @classmethod
    def from_counts(cls, counts: TransitionCounts) -> EmpiricalProcess:
        """The process of transition `counts` alone.

        Raises `GroupError` for empty counts, and if an anchor has no outgoing transition, as in an unfinished group.
        """
        if not counts.total:
            raise GroupError("the counts are empty: no step has been taken")
        triples = sorted(counts.items())
        if counts.total >= 1 << 62:
            raise GroupError(f"the counts add up to {counts.total}, which is beyond 2^62")
        names = list(dict.fromkeys(anchor for (anchor, _, _), _ in triples))
        column = {name: i for i, name in enumerate([*names, SUCCESS, FAILURE])}
        action_ids = {a: i for i, a in enumerate(dict.fromkeys(action for (_, action, _), _ in triples))}
        for (anchor, action, successor), _ in triples:
            if successor not in column:
                raise GroupError(
                    f"anchor {successor}, reached from {anchor} by {action!r}, was never left: "
                    "the closure needs complete rollouts"
                )
        sparse, pair_anchor, pair_action, _ = _count(
            len(names),
            np.array([column[s] for (s, _, _), _ in triples], dtype=np.int64),
            np.array([action_ids[a] for (_, a, _), _ in triples], dtype=np.int64),
            np.array([column[x] for (_, _, x), _ in triples], dtype=np.int64),
            np.array([n for _, n in triples], dtype=np.int64),
        )
        return cls(sparse, pair_anchor, pair_action, anchor_names=names, action_names=list(action_ids))

    def with_successors(self) -> EmpiricalProcess:
        """The same process, in which the last step of a rollout that `goes_on` leads to its final anchor.

        A cycle that nothing leaves is possible: a group's rollouts may all be truncated in it. Raises as `steps` does.
        """
        rollouts, pair = self.steps("the successors of truncated steps need")
        if not rollouts.goes_on.any():
            return self
        size = self.num_anchors
        end = np.where(rollouts.success, size, np.where(rollouts.goes_on, rollouts.final_anchor, size + 1))
        return replace(self, counts=_counts(pair, _successors(rollouts, end), self.num_pairs, size))

    def steps(self, caller: str = "advantages need") -> tuple[InternedRollouts, Ints]:
        """The rollouts behind the counts, and the pair of each step (n,).

        Raises a `GroupError` that begins with `caller` for a process that was built from counts alone.
        """
        if self.rollouts is None or self.pair is None:
            raise GroupError(f"{caller} rollouts: build the process with EmpiricalProcess.from_group")
        return self.rollouts, self.pair

    # ---- names and sizes ----------------------------------------------------------------------

    @property
    def num_anchors(self) -> int:
        """S, the number of anchors."""
        return self.counts.shape[1] - 2

    @property
    def num_pairs(self) -> int:
        """L, the number of different (anchor, action) pairs."""
        return self.counts.shape[0]

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """The key of every anchor, or its number if the rollouts were interned without names."""
        return tuple(map(str, range(self.num_anchors)) if self.anchor_names is None else self.anchor_names)

    @cached_property
    def pairs(self) -> tuple[tuple[int, str], ...]:
        """(anchor index, action) of every pair, sorted by anchor index."""
        names = self.action_names
        actions = [str(a) if names is None else names[a] for a in self.pair_action.tolist()]
        return tuple(zip(self.pair_anchor.tolist(), actions, strict=True))

    # ---- frequencies --------------------------------------------------------------------------

    @cached_property
    def pair_count(self) -> Floats:
        """N(s, a), shape (L,)."""
        return sum_by(self.counts.row, self._n, self.num_pairs)

    @cached_property
    def anchor_count(self) -> Floats:
        """N(s), shape (S,)."""
        return sum_by(self.pair_anchor, self.pair_count, self.num_anchors)

    @cached_property
    def actions_per_anchor(self) -> Ints:
        """|A(s)|: the number of distinct actions observed at each anchor, shape (S,)."""
        return np.bincount(self.pair_anchor, minlength=self.num_anchors)

    @cached_property
    def anchor_group(self) -> Ints:
        """The group of each anchor, shape (S,). Raises `GroupError` for a process built from counts alone."""
        rollouts = self.steps("the groups of anchors need")[0]
        group = np.empty(self.num_anchors, dtype=np.int64)
        group[rollouts.anchor] = rollouts.group[rollouts.rollout]
        return group

    @cached_property
    def P(self) -> Sparse:
        """P(x | s, a) = N(s, a, x) / N(s, a), L x (S + 2) (eq. 5)."""
        n = self.counts
        return Sparse(n.row, n.col, self._n / self.pair_count[n.row], n.shape)

    @cached_property
    def mu(self) -> Floats:
        """mu(a | s) = N(s, a) / N(s), shape (L,) (eq. 5)."""
        return self.pair_count / self.anchor_count[self.pair_anchor]

    @cached_property
    def state_counts(self) -> Sparse:
        """N(s, x), S x (S + 2) integers: the counts summed over actions."""
        size, columns = self.num_anchors, self.num_anchors + 2
        code, total = _tally(self.pair_anchor[self.counts.row] * columns + self.counts.col, self.counts.data)
        return Sparse(code // columns, code % columns, total, (size, columns))

    @cached_property
    def M(self) -> Sparse:
        """M(s, s') = N(s, s') / N(s), S x S, substochastic (eq. 8).

        The integers are summed first and divided once. Summing 1/N row by row gives errors up to 5e-12 at beta = 1.
        """
        size = self.num_anchors
        n = self.state_counts
        inner = n.col < size
        row, col = n.row[inner], n.col[inner]
        return Sparse(row, col, n.data[inner].astype(np.float64) / self.anchor_count[row], (size, size))

    def b(self, beta: float | Floats) -> Floats:
        """b(s) = beta N(s, z+) / N(s), shape (S,) (eq. 8); the discount `beta` may be one number per anchor (S,)."""
        size = self.num_anchors
        n = self.state_counts
        won = n.col == size
        reached = sum_by(n.row[won], n.data[won].astype(np.float64), size)
        return beta * reached / self.anchor_count

    def backup(self, values: Floats, beta: float | Floats) -> Floats:
        """(B V)(s, a) = beta sum_x P(x | s, a) V(x) for `values` V (S,), with V(z+) = 1 and V(z-) = 0; shape (L,)
        (eq. 7). The discount `beta` may be one number per pair (L,)."""
        return beta * (self.P @ np.append(values, (1.0, 0.0)))

    @cached_property
    def _n(self) -> Floats:
        return self.counts.data.astype(np.float64)


def _count(
    size: int, anchor: Ints, action: Ints, successor: Ints, count: Ints | None = None
) -> tuple[Sparse, Ints, Ints, Ints]:
    """Number the pairs and sum the counts (default: 1 per row).

    Returns N(s, a, x), the anchor and the action of every pair, and the pair of every input row.
    """
    actions = int(action.max()) + 1
    pair_code, pair = renumber(anchor * actions + action)
    counts = _counts(pair, successor, len(pair_code), size, count)
    return counts, pair_code // actions, pair_code % actions, pair


def _counts(pair: Ints, successor: Ints, pairs: int, size: int, count: Ints | None = None) -> Sparse:
    """N(s, a, x) as a `pairs` x (`size` + 2) matrix."""
    columns = size + 2
    code, total = _tally(pair * columns + successor, count)
    return Sparse(code // columns, code % columns, total, (pairs, columns))


def _successors(rollouts: InternedRollouts, end: Ints) -> Ints:
    """The column that each step leads to: the next step's anchor, and after a rollout's last step its `end` (m,)."""
    successor = np.append(rollouts.anchor[1:], 0)
    successor[np.cumsum(rollouts.length) - 1] = end
    return successor


def _tally(code: Ints, count: Ints | None = None) -> tuple[Ints, Ints]:
    """The distinct codes, ascending, and the sum of the integer `count` (default 1) over each."""
    if count is None:
        ascending = np.sort(code)
        starts = np.flatnonzero(np.diff(ascending, prepend=-1))
        return ascending[starts], np.diff(starts, append=len(code))
    order = _ascending(code)
    ascending = code[order]
    starts = np.flatnonzero(np.diff(ascending, prepend=-1))
    return ascending[starts], np.add.reduceat(count[order], starts)


def _ascending(code: Ints) -> Ints:
    """The order that sorts `code`. A code and its place are sorted as one number, which is faster than `argsort`."""
    bits = len(code).bit_length()
    if int(code.max()).bit_length() + bits > 62:
        return np.argsort(code)
    return np.sort(code << bits | np.arange(len(code))) & ((1 << bits) - 1)
