"""Intervals of a success rate on a panel, of which some tasks may be the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def wilson(successes: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a proportion, 95 % for z = 1.96 (Wilson 1927)."""
    p, zz = successes / n, z * z / n
    centre, half = p + zz / 2, z * math.sqrt(p * (1 - p) / n + zz / (4 * n))
    return max(0.0, (centre - half) / (1 + zz)), min(1.0, (centre + half) / (1 + zz))


def independent_tasks(success: NDArray[np.bool_], content: Sequence[str]) -> float:
    """The number n of independent tasks that tell as much about success as these, of which some have one content.

    The variance of the success rate p is that of a mean over clusters, the C tasks of one content, with C / (C - 1); of
    n independent tasks it is p (1 - p) / (n - 1). So one content is one task, and C that agree within are C. Where all
    succeed or all fail, outcomes tell nothing about it, and every content counts once.
    """
    n, different = len(success), len(set(content))
    rate = float(success.mean())
    if different == n or rate in (0.0, 1.0):
        return float(different)
    cluster = np.unique(np.array(content), return_inverse=True)[1]
    variance = float(np.square(np.bincount(cluster, success - rate)).sum()) / n**2
    ratio = rate * (1 - rate) / max(variance, rate * (1 - rate) / n)
    return min(float(n), 1 + ratio * (different - 1) / different)
