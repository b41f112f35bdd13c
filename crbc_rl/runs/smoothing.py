"""Smoothed curves, as the paper draws them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def smoothing(updates: int) -> float:
    """The weight of the past in the smoothed curves: the paper's 0.95 for its 150 updates, and for a shorter run the
    weight that averages over the same fraction of the run."""
    return min(0.95, max(0.5, 1.0 - 7.5 / max(updates, 1)))


def smooth(y: Floats, weight: float) -> Floats:
    """Exponential moving average with Adam's bias correction, same shape."""
    out, total, mass = np.empty_like(y), 0.0, 0.0
    for i, value in enumerate(y):
        total, mass = weight * total + (1 - weight) * value, weight * mass + (1 - weight)
        out[i] = total / mass
    return out
