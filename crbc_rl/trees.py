"""Rows of tokens that several turns share: what they begin with is in a row once, and read once.

    a b c d          turns a b c d, a b e and a b e f are one row  a b c d e f
         e f         positions                                     0 1 2 3 2 3

A token attends to those before it in its turns. So the hidden states, and all that is made of them, are those of turns
that are read alone. The members of a group ask with the same prompts, and prompts begin alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anchors.columns import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The tokens of one row, `ids`. `turns` are the numbers of its turns, and `paths` where each has its tokens."""

    turns: Sequence[int]
    ids: Sequence[int]
    paths: Sequence[Ints]

    def __len__(self) -> int:
        return len(self.ids)

    def position(self, width: int) -> Ints:
        """Each token's place in its turns, (width,); 0 on padding."""
        position = np.zeros(width, dtype=np.int64)
        for path in self.paths:
            position[path] = np.arange(len(path))
        return position

    def mask(self, width: int) -> Bools:
        """Which tokens (first axis) attend to which, (width, width); padding attends to itself."""
        mask = np.eye(width, dtype=np.bool_)
        for path in self.paths:
            mask[np.ix_(path, path)] |= np.tri(len(path), dtype=np.bool_)
        return mask


def packed(rows: Sequence[Tree]) -> Tree:
    """The turns of all rows one behind the other, in one row: their positions begin anew."""
    starts = np.cumsum([0, *map(len, rows)])
    return Tree(
        [turn for row in rows for turn in row.turns],
        [token for row in rows for token in row.ids],
        [path + start for row, start in zip(rows, starts, strict=False) for path in row.paths],
    )


def trees(
    turns: Sequence[Sequence[int]], reach: float, size: int | None = None, tokens: int | None = None
) -> list[Tree]:
    """The token ids of distinct `turns` as trees of at most `size` turns and `tokens` tokens, or of one turn.

    They are cut so that all together cost least. A tree of n tokens costs n + n * n / `reach`: with `reach` tokens,
    attention costs as much as the rest of the model.
    """
    order = sorted(range(len(turns)), key=lambda turn: list(turns[turn]))
    arrays = [np.asarray(turns[turn]) for turn in order]
    length = np.array([len(array) for array in arrays])
    alike = np.array([0, *(common(one, other) for one, other in pairwise(arrays))])
    added = np.cumsum(length - alike)  # the tokens of a tree of all turns up to each
    best, cut = np.zeros(len(order) + 1), np.zeros(len(order) + 1, dtype=np.int64)
    for end in range(1, len(order) + 1):
        first = 0 if size is None else max(0, end - size)
        held = added[end - 1] - added[first:end] + length[first:end]
        cost = np.where(
            (held > (tokens or np.inf)) & (held > held[-1]), np.inf, best[first:end] + held * (1 + held / reach)
        )
        cut[end] = first + int(cost.argmin())
        best[end] = cost[cut[end] - first]
    made, end = [], len(order)
    while end:
        start = int(cut[end])
        made.append(_grown(order[start:end], arrays[start:end], alike[start:end].tolist()))
        end = start
    return made[::-1]


def _grown(turns: Sequence[int], arrays: Sequence[Ints], alike: Sequence[int]) -> Tree:
    """The tree of turns in order, each of which begins like the one before it for so many tokens."""
    ids, paths, path = list[int](), list[Ints](), np.zeros(0, dtype=np.int64)
    for array, shared in zip(arrays, [0, *alike[1:]], strict=True):
        path = np.concatenate([path[:shared], len(ids) + np.arange(len(array) - shared)])
        ids += array[shared:].tolist()
        paths.append(path)
    return Tree(turns, ids, paths)


def common(one: Ints, other: Ints) -> int:
    """The tokens with which both begin."""
    both = min(len(one), len(other))
    differ = np.flatnonzero(one[:both] != other[:both])
    return int(differ[0]) if len(differ) else both
