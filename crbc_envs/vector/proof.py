"""The proof of a group: its copies begin alike in everything that an agent sees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat, takewhile
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import GroupError
from crbc_envs.core import Outcome

SEEN = ("task_id", "task", "anchor", "label", "admissible_actions", "step")
"""What must be equal of the infos, in the order in which it is compared. The observation comes last."""

LONGEST = 100
"""Longer values are shown in part."""


def prove_alike(groups: Sequence[int], size: int, outcome: Outcome) -> None:
    """Check that the copies of each group begin alike: equal infos (`SEEN`), and observations equal to the byte.

    `outcome` has `size` members for each of `groups`, in order. Raises `GroupError` at the first difference.
    """
    columns = [(name, outcome.infos[name]) for name in SEEN if name in outcome.infos]
    observations = outcome.observations
    if isinstance(observations, np.ndarray):
        unlike = _unlike_rows(observations, size)
        columns += [("observation", observations)] if unlike.any() else []  # else nothing is left to compare
    else:
        columns.append(("observation", observations))
    for place, group in enumerate(groups):
        part = slice(place * size, (place + 1) * size)
        for name, column in columns:
            values = column[part]
            expected, *rest = values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else values
            if all(map(is_, rest, repeat(expected))):
                continue
            for m, value in enumerate(rest, group * size + 1):
                if not equal(value, expected):
                    one, other = _shown(value, expected)
                    raise GroupError(
                        f"group {group} is not identical at reset: member {m} has {name} {one}, "
                        f"member {group * size} has {other}"
                    )


def _unlike_rows(table: NDArray[Any], size: int) -> NDArray[np.bool_]:
    """The mask of the rows whose bytes are not those of the first row of their group. `size` rows are a group."""
    if table.dtype.hasobject or not table.size:
        return np.ones(len(table), dtype=np.bool_)  # compared one by one
    unlike = []
    for first in range(0, len(table), size):
        expected = table[first].tobytes()
        unlike += [row.tobytes() != expected for row in table[first : first + size]]
    return np.array(unlike)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same data: arrays to the byte, containers entry by entry, NaN like NaN."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _equal_arrays(np.asarray(one), np.asarray(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) or (one != one and other != other)


def _equal_arrays(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.hasobject:
        return equal(one.tolist(), other.tolist())
    return one.tobytes() == other.tobytes()


def _shown(value: Any, expected: Any) -> tuple[str, str]:
    """Two different values as an error shows them: from a little before the place where long ones begin to differ."""
    if isinstance(value, np.ndarray) and isinstance(expected, np.ndarray) and value.shape == expected.shape:
        where = np.flatnonzero((value != expected).ravel())
        if value.size > 8 and where.size:
            place = tuple(int(i) for i in np.unravel_index(where[0], value.shape))
            return (
                f"{value[place]!r} at {place} ({where.size} of {value.size} entries differ)",
                f"{expected[place]!r} there",
            )
    texts = [repr(value), repr(expected)]
    start = 0
    if max(map(len, texts)) > LONGEST:
        common = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        start = max(0, sum(1 for _ in common) - LONGEST // 3)
    cut = [
        "..." * (start > 0) + text[start : start + LONGEST] + "..." * (len(text) > start + LONGEST) for text in texts
    ]
    return cut[0], cut[1]
