"""Evidence coverage: the rollouts whose outcomes can reach a visit at depth K (paper, appendix "Closure Depth and
Evidence Coverage").

The coverage of an anchor s at depth K is the number of rollouts that visit an anchor reachable from s along at most K
observed edges. At K = 0 these are the rollouts that visit s itself; under full closure, those that visit any of its
descendants. It depends on the graph alone, and equals the number of outcomes R_j that affect V_K(s).

The paper counts over the *eligible* visits: those at anchors with two or more observed actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchors.process import EmpiricalProcess, Ints

Words = NDArray[np.uint64]

PAPER_DEPTHS = (0, 1, 2, 3, None)
"""The default depths of the statistics. None is the full closure."""


@dataclass(frozen=True, slots=True, eq=False)
class CoverageStatistics:
    """Coverage of the eligible visits of any number of groups, at each of `depths` (D of them).

    `coverage` (D, n) has the number of rollouts per eligible visit, 1 to its group's size. `size` (n,) is that size G.
    `visits` is the number of all visits, eligible or not.
    """

    depths: tuple[int | None, ...]
    coverage: Ints
    size: Ints
    visits: int

    @property
    def eligible(self) -> int:
        """The number of eligible visits, n."""
        return len(self.size)

    @property
    def full_access(self) -> NDArray[np.float64]:
        """Fraction of eligible visits that all G rollouts reach, per depth, shape (D,).

        In the paper it is 12.9 % at K = 0 and 61.5 % under closure.
        """
        return self._fraction(self.coverage == self.size)

    @property
    def expanded(self) -> NDArray[np.float64]:
        """Fraction of eligible visits whose coverage is larger than at the first depth, shape (D,).

        In the paper it is 63.0 %, from K = 0 to closure.
        """
        return self._fraction(self.coverage > self.coverage[:1])

    @property
    def distribution(self) -> NDArray[np.float64]:
        """Fraction of eligible visits that g rollouts reach, shape (D, max G + 1), column g. Rows sum to one."""
        return np.stack([self._fraction(self.coverage == g) for g in range(self._largest + 1)], axis=1)

    @property
    def paired(self) -> Ints:
        """The number of eligible visits with coverage i at the first depth and j at the last, shape
        (max G + 1, max G + 1): the matrix of the paper's figure."""
        size = self._largest + 1
        flat = np.bincount(self.coverage[0] * size + self.coverage[-1], minlength=size * size)
        return flat.reshape(size, size).astype(np.int64, copy=False)

    @property
    def _largest(self) -> int:
        return int(self.size.max(initial=0))

    def _fraction(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The fraction of a mask (D, n) per depth, shape (D,). nan if no visit is eligible."""
        counts: NDArray[np.float64] = mask.sum(axis=1).astype(np.float64)
        return counts / self.eligible if self.eligible else np.full(len(counts), np.nan)


def coverage(process: EmpiricalProcess, depth: int | None = None) -> Ints:
    """Coverage_K(s): the number of rollouts whose evidence reaches each anchor at `depth`, shape (S,).

    `depth=None` is the full closure. Groups in one process do not reach each other. Raises `GroupError` for a process
    built from counts alone, and `ValueError` for a negative depth.
    """
    counts: Ints = coverages(process, (depth,))[0]
    return counts


def coverages(process: EmpiricalProcess, depths: Sequence[int | None] = PAPER_DEPTHS) -> Ints:
    """`coverage` at several depths from one propagation, shape (D, S), in the order given."""
    for depth in depths:
        if depth is not None and depth < 0:
            raise ValueError(f"depth must be None (the full closure) or an integer >= 0, got {depth!r}")
    asked = set(depths)
    deepest = None if None in asked else max((d for d in asked if d is not None), default=0)
    by_depth: dict[int | None, Ints] = {}
    for depth, words in enumerate(_propagate(process, deepest)):
        count = _ones(words).sum(axis=1, dtype=np.int64)
        if depth in asked:
            by_depth[depth] = count
    # Once a round changes nothing, all further depths equal the closure.
    return np.stack([by_depth.get(depth, count) for depth in depths])


def _ones(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    return np.unpackbits(words.view(np.uint8), axis=1)  # numpy 1


def eligible(process: EmpiricalProcess) -> NDArray[np.bool_]:
    """Whether each step was taken at an anchor with two or more distinct observed actions."""
    anchor = process.steps("coverage needs")[0].anchor
    several: NDArray[np.bool_] = process.actions_per_anchor[anchor] >= 2
    return several


def coverage_statistics(process: EmpiricalProcess, depths: Sequence[int | None] = PAPER_DEPTHS) -> CoverageStatistics:
    """The paper's coverage analysis over the eligible visits of all groups in `process`."""
    rollouts = process.steps("coverage needs")[0]
    chosen = eligible(process)
    anchor = rollouts.anchor[chosen]
    size = np.bincount(rollouts.group)[rollouts.group[rollouts.rollout[chosen]]]
    return CoverageStatistics(
        tuple(depths), coverages(process, depths)[:, anchor], size.astype(np.int64, copy=False), len(rollouts.anchor)
    )


def _propagate(process: EmpiricalProcess, deepest: int | None) -> Iterator[Words]:
    """The rollouts that reach each anchor at depth 0, 1, 2, ... as bit sets, until `deepest` or until nothing changes.

    Bit i is member i of the anchor's own group; shape (S, ceil(max G / 64)).
    """
    rollouts = process.steps("coverage needs")[0]
    first = np.searchsorted(rollouts.group, rollouts.group)  # each rollout's group starts at this rollout
    member = (np.arange(len(rollouts.group)) - first)[rollouts.rollout]
    words = np.zeros((len(process.anchors), int(member.max()) // 64 + 1), dtype=np.uint64)
    bit = np.uint64(1) << (member % 64).astype(np.uint64)
    np.bitwise_or.at(words, (rollouts.anchor, member // 64), bit)
    yield words

    edges = process.M  # sorted by row, as reduceat needs
    row, start = np.unique(edges.row, return_index=True)
    depth = 0
    while len(row) and (deepest is None or depth < deepest):
        reached = words.copy()
        reached[row] |= np.bitwise_or.reduceat(words[edges.col], start, axis=0)
        if np.array_equal(reached, words):
            return
        words, depth = reached, depth + 1
        yield words
