"""Counted processes that are hard to solve: graphs, grids and chains with few ways out, as M and N(s, z+) / N(s)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import Sparse, sum_by

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
System = tuple[Sparse, Floats]
"""M (S, S), and the share of visits to each anchor that end in success, (S,)."""


def random_graph(size: int, actions: int = 4, seed: int = 0) -> System:
    """`actions` successors of every anchor, all random but one. One anchor leads to success, one to failure."""
    rng = np.random.default_rng(seed)
    col = rng.integers(size, size=(size, actions))
    col[:, 0] = (np.arange(size) + 1) % size  # every anchor can be reached
    return counted(np.repeat(np.arange(size), actions), col.ravel(), rng, {0: (1, 1), 1: (0, 1)}, size)


def grid(width: int, height: int | None = None, drift: int = 0, seed: int = 0) -> System:
    """A walk in four directions, with success in the far corner and failure halfway along the near side. The anchors
    are numbered at random. `drift` draws the walk away from where it starts."""
    height = width if height is None else height
    rng = np.random.default_rng(seed)
    place = np.arange(width * height)
    x, y = place % width, place // width
    steps = ((1, 0), (-1, 0), (0, 1), (0, -1))
    to = [(y + v).clip(0, height - 1) * width + (x + u).clip(0, width - 1) for u, v in steps]
    extra = np.repeat([drift, 0, drift, 0], len(place))
    name = rng.permutation(len(place))
    ends = {int(name[-1]): (1, 0), int(name[width // 2]): (0, 1)}
    return counted(name[np.tile(place, 4)], name[np.concatenate(to)], rng, ends, len(place), extra)


def chain(size: int, seed: int = 0) -> System:
    """A walk forwards and backwards from failure to success."""
    rng = np.random.default_rng(seed)
    place = np.arange(size)
    row, col = np.tile(place, 2), np.concatenate((np.minimum(place + 1, size - 1), np.maximum(place - 1, 0)))
    return counted(row, col, rng, {size - 1: (1, 0), 0: (0, 1)}, size)


def star(size: int, seed: int = 0) -> System:
    """A hub that leads everywhere, and everything leads back to it."""
    rng = np.random.default_rng(seed)
    leaf, hub = np.arange(1, size), np.zeros(size - 1, dtype=np.int64)
    return counted(np.append(leaf, hub), np.append(hub, leaf), rng, {1: (1, 0), 0: (0, 1)}, size)


def tree(size: int, seed: int = 0) -> System:
    """A walk up and down a binary tree, from failure at its root to success at the last leaf."""
    rng = np.random.default_rng(seed)
    below = np.arange(1, size)
    above = (below - 1) // 2
    return counted(np.append(below, above), np.append(above, below), rng, {size - 1: (1, 0), 0: (0, 1)}, size)


def clusters(number: int, size: int, seed: int = 0) -> System:
    """Random graphs with few ways from one to the next. Each has one way to failure, and the first one to success."""
    rng = np.random.default_rng(seed)
    total = number * size
    col = rng.integers(size, size=(total, 4))
    col[:, 0] = (np.arange(total) + 1) % size
    near = np.repeat(np.arange(total), 4)
    far = rng.integers(total, size=(2, 3 * number))
    row, col = np.append(near, far[0]), np.append(near // size * size + col.ravel(), far[1])
    ends = {i * size: (0, 1) for i in range(number)} | {0: (1, 1)}
    return counted(row, col, rng, ends, total, np.repeat([100, 0], [len(near), len(far[0])]))


def together(systems: Sequence[System]) -> System:
    """Several groups as one system."""
    sizes = [len(reached) for _, reached in systems]
    offsets = np.cumsum([0, *sizes[:-1]])
    row = np.concatenate([M.row + offset for (M, _), offset in zip(systems, offsets, strict=True)])
    col = np.concatenate([M.col + offset for (M, _), offset in zip(systems, offsets, strict=True)])
    data = np.concatenate([M.data for M, _ in systems])
    return Sparse(row, col, data, (sum(sizes), sum(sizes))), np.concatenate([reached for _, reached in systems])


def counted(
    row: Ints, col: Ints, rng: np.random.Generator, ends: dict[int, tuple[int, int]], size: int, extra: Any = 0
) -> System:
    """Transitions with random counts of 1 to 3, and `extra`; `ends`: successes and failures after some anchors."""
    code, place = np.unique(row * size + col, return_inverse=True)
    count = sum_by(place, rng.integers(1, 4, size=len(row)) + extra + 0.0, len(code))
    won, lost = np.zeros(size), np.zeros(size)
    for anchor, (wins, losses) in ends.items():
        won[anchor], lost[anchor] = wins, losses
    total = sum_by(code // size, count, size) + won + lost
    return Sparse(code // size, code % size, count / total[code // size], (size, size)), won / total
