"""Statistics within groups of rows, used by all group-relative estimators; exactly zero for flat groups."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Literal, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from anchors import sum_by
from crbc_rl.credit.errors import CreditError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mode = Literal["mean_std_norm", "mean_norm"]

EPSILON = 1e-6
"""Added to the standard deviation, as in every public implementation."""

ROUNDING = 1e-12
"""A deviation from the mean below this fraction of the group's mean absolute value is rounding and is set to 0."""

SINGLE = 1e-6
"""A standard deviation below this fraction of the group's mean absolute value is the rounding of float32, in which
environments and reward models compute. Divided by it, one unit in the last place would be an advantage like any
other."""


def centre(x: Floats, group: Ints, size: int) -> tuple[Floats, Floats]:
    """The number of rows per group (size,), and per row x minus the mean of its group, 0 where only rounding is left.

    Public float32 code gives a group of equal returns up to 0.64, one ulp of the mean divided by 1e-6. Here the mean is
    computed from the differences to one member, so a flat group is exactly 0.
    """
    n = np.bincount(group, minlength=size).astype(np.float64)
    count = np.maximum(n, 1.0)
    member = np.zeros(size)
    member[group] = x
    apart = x - member[group]
    deviation = apart - (sum_by(group, apart, size) / count)[group]
    scale = sum_by(group, np.abs(x), size) / count
    deviation[np.abs(deviation) <= ROUNDING * scale[group]] = 0.0
    return n, deviation


def normalise(x: Floats, group: Ints, size: int, mode: Mode, ddof: int = 1) -> Floats:
    """(x - mean) / (std + 1e-6) within each group, or x - mean alone with "mean_norm"; one value per row.

    std is over n - `ddof`. A flat group, a group of one included, gets exact zeros. With "mean_std_norm" so does one
    that is flat but for the rounding of float32.
    """
    _, deviation = centre(x, group, size)
    if mode == "mean_norm":
        return deviation
    std = spread(x, deviation, group, size, ddof)
    deviation[std[group] == 0.0] = 0.0
    return deviation / (std + EPSILON)[group]


def spread(x: Floats, deviation: Floats, group: Ints, size: int, ddof: int = 1) -> Floats:
    """The standard deviation of each group (size,), from `centre`'s deviations of x; 0 where it is rounding."""
    n = np.bincount(group, minlength=size)
    std = np.sqrt(sum_by(group, deviation**2, size) / np.maximum(n - ddof, 1))
    return np.where(std > SINGLE * sum_by(group, np.abs(x), size) / np.maximum(n, 1), std, 0.0)


def apart(one: Floats, other: Floats, rounding: float = ROUNDING) -> Floats:
    """one - other, 0 where only rounding is left, a share `rounding` of the larger of the two."""
    difference = one - other
    difference[np.abs(difference) <= rounding * np.maximum(np.abs(one), np.abs(other))] = 0.0
    return difference


def rounding_of(mode: Mode) -> float:
    """The share of a difference's terms that is rounding: of float32 where the result is divided by its deviation."""
    return SINGLE if mode == "mean_std_norm" else ROUNDING


def check_mode(mode: str) -> None:
    if mode not in get_args(Mode):
        raise CreditError(f"mode must be one of {', '.join(get_args(Mode))}; got {mode!r}")


def check_discount(name: str, value: object) -> None:
    if not (is_number(value) and 0.0 < value <= 1.0):
        raise CreditError(f"{name} must lie in (0, 1], got {value!r}")


def check_fraction(name: str, value: object) -> None:
    if not (is_number(value) and 0.0 <= value <= 1.0):
        raise CreditError(f"{name} must lie in [0, 1], got {value!r}")


def check_weights(**weights: float) -> None:
    if not all(is_number(value) and value >= 0.0 for value in weights.values()):
        names, values = " and ".join(weights), " and ".join(repr(value) for value in weights.values())
        raise CreditError(f"{names} must be finite and >= 0, got {values}")


def check_finite(**values: float) -> None:
    for name, value in values.items():
        if not is_number(value):
            raise CreditError(f"{name} must be a finite number, got {value!r}")


def check_positive(name: str, value: float) -> None:
    if not (is_number(value) and value > 0.0):
        raise CreditError(f"{name} must be positive and finite, got {value!r}")


def is_number(value: object) -> TypeGuard[float]:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
