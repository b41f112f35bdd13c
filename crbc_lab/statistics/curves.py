"""Learning curves of several seeds: one band, and the area under each. And smoothed curves, as the paper draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crbc_lab.statistics.intervals import ALPHA, quantile
from crbc_lab.statistics.outcomes import Floats
from crbc_rl.errors import ConfigError

Curve = tuple[ArrayLike, ArrayLike]
"""Updates, increasing, and the value at each."""


@dataclass(frozen=True, eq=False)
class Band:
    """A curve over seeds: `centre`, `low` and `high` (U,) at `updates` (U,)."""

    updates: Floats
    centre: Floats
    low: Floats
    high: Floats


def band(curves: Sequence[Curve]) -> Band:
    """The mean over seeds and its 95 % interval, at every update that all seeds share.

    Each curve is interpolated linearly to the updates of any seed between the last start and the first end. The band
    holds pointwise: 95 % at each update, not at all of them together. One seed has no width. Raises `ConfigError` for
    updates that do not increase, values that are no numbers, and seeds without a common range.
    """
    updates, values = _shared([_read(curve, seed) for seed, curve in enumerate(curves)])
    seeds = len(values)
    errors = values.std(axis=0, ddof=1) / math.sqrt(seeds) if seeds > 1 else np.zeros(len(updates))
    centre, half = values.mean(axis=0), quantile(1 - ALPHA / 2, max(seeds - 1, 1)) * errors
    return Band(updates, centre, centre - half, centre + half)


def area(updates: ArrayLike, values: ArrayLike) -> float:
    """The area under a curve over the length of its updates: the mean height, in the unit of the values."""
    at, height = _read((updates, values), 0)
    return float(np.trapezoid(height, at) / (at[-1] - at[0])) if len(at) > 1 else float(height[0])


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


def _read(curve: Curve, seed: int) -> tuple[Floats, Floats]:
    at, height = (np.asarray(column, dtype=np.float64) for column in curve)
    if at.shape != height.shape or at.ndim != 1 or not len(at):
        raise ConfigError(f"curve {seed}: {at.shape} updates and {height.shape} values; give one value per update")
    if not (np.isfinite(at).all() and np.isfinite(height).all()):
        raise ConfigError(f"curve {seed}: an update or value is no finite number; leave out updates without a value")
    if (np.diff(at) <= 0).any():
        raise ConfigError(f"curve {seed}: its updates do not increase; sort them and keep one value each")
    return at, height


def _shared(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """The updates of any seed within the range of all, (U,), and every curve there, (S, U)."""
    if not curves:
        raise ConfigError("there are no curves: give the updates and values of one seed or more")
    start, end = max(at[0] for at, _ in curves), min(at[-1] for at, _ in curves)
    updates = np.unique(np.concatenate([at for at, _ in curves]))
    updates = updates[(start <= updates) & (updates <= end)]
    if not len(updates):
        raise ConfigError(f"the curves share no updates: one starts at {start:g}, another ends at {end:g}")
    return updates, np.array([np.interp(updates, at, height) for at, height in curves])
