"""Reads the columns of a caller's table: lists, arrays and tensors of ids and of numbers."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable
from itertools import count
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import GroupError
from anchors.columns import renumber
from crbc_rl.credit.groups import Floats, Ints, is_number

Column = Any
"""One value per row: a list, a tuple, a numpy array or a torch tensor."""

Values = list[Any] | NDArray[Any]
"""A column as it is kept: a numpy array of numbers, or a list."""

_PLAIN = frozenset((str, int, float, bool, type(None)))
_HUGE = 2**62


def read(name: str, column: Column) -> Values:
    """A column as it is kept. Raises `GroupError` for what has no length, such as a generator."""
    if type(column) is np.ndarray and column.ndim == 1 and column.dtype.kind in "biuf" and column.itemsize <= 8:
        return column
    if hasattr(column, "tolist"):  # torch, pandas and other arrays
        column = column.tolist()
    if isinstance(column, str | bytes) or not isinstance(column, list | tuple):
        raise GroupError(f"{name}: a list, a tuple, an array or a tensor is wanted, got {type(column).__name__}")
    return column if isinstance(column, list) else list(column)


def listed(values: Values) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def shown(values: Values, row: int) -> str:
    """One value, for a message."""
    return repr(plain("", listed(values[row : row + 1]))[0])


def numbered(name: str, values: Values) -> tuple[Ints, dict[Any, int]]:
    """The number of every id in order of first appearance, and the numbers by id.

    Raises `GroupError` for an id that cannot be told from others.
    """
    ids = listed(values)
    known: defaultdict[Any, int] = defaultdict(count().__next__)
    try:
        numbers = np.fromiter(map(known.__getitem__, ids), np.int64, len(ids))
    except TypeError as error:
        odd = next((id for id in ids if not isinstance(id, Hashable)), "a tuple of what is not")
        raise GroupError(f"{name}: ids must be hashable, such as numbers and texts, got {odd!r}") from error
    if not _PLAIN.issuperset(map(type, known)):
        if any(hasattr(id, "item") for id in known):  # numpy's single values, and torch's, which are equal to none
            return numbered(name, plain(name, ids))
        odd = next((id for id in known if _alone(id)), None)
        if odd is not None:
            raise GroupError(f"{name}: an id is equal to its like, as numbers and texts are; got {odd!r}")
    return numbers, known


def by_appearance(codes: Ints) -> tuple[Ints, Ints, Ints]:
    """The number of every code in order of first appearance; by number, the codes and the rows of these."""
    known, index = renumber(codes)
    first = np.empty(len(known), dtype=np.int64)
    first[index[::-1]] = np.arange(len(codes))[::-1]
    order = np.argsort(first)
    return np.argsort(order)[index], known[order], first[order]


def floats(name: str, values: Values, least: float = -inf, most: float = inf) -> tuple[Floats, int | None]:
    """The values as float64, and the row of the first that is no finite number from `least` to `most`."""
    if isinstance(values, np.ndarray):
        numbers = values.astype(np.float64, copy=False)
    else:
        try:
            numbers = np.frombuffer(array("d", values))  # strict, unlike NumPy, which reads texts and None
        except (OverflowError, RuntimeError, TypeError, ValueError):
            numbers = np.array([float(v) if isinstance(v, bool) or is_number(v) else nan for v in plain(name, values)])
    odd = ~(np.isfinite(numbers) & (numbers >= least) & (numbers <= most))
    return numbers, int(np.argmax(odd)) if odd.any() else None


def flags(name: str, values: Values) -> tuple[NDArray[np.bool_], int | None]:
    """The values as truths, and the row of the first that is neither 0 nor 1."""
    odd = None
    try:
        numbers: NDArray[Any] = values if isinstance(values, np.ndarray) else np.frombuffer(bytes(values), np.uint8)
    except (TypeError, ValueError):
        numbers, odd = floats(name, values)
    wrong = (numbers != 0) & (numbers != 1)
    return numbers != 0, int(np.argmax(wrong)) if odd is None and wrong.any() else odd


def integers(name: str, values: Values) -> tuple[Ints, int | None]:
    """The values as int64, and the row of the first that is no integer below 2^62."""
    try:
        numbers = values if isinstance(values, np.ndarray) else np.frombuffer(array("q", values), np.int64)
        if numbers.dtype.kind in "iu" and numbers.min() > -_HUGE and numbers.max() < _HUGE:
            return numbers.astype(np.int64, copy=False), None
    except (OverflowError, RuntimeError, TypeError, ValueError):
        pass
    whole = plain(name, listed(values))
    odd = [type(v) is not int or not -_HUGE < v < _HUGE for v in whole]
    return (np.zeros(0, dtype=np.int64), odd.index(True)) if any(odd) else (np.array(whole, dtype=np.int64), None)


def plain(name: str, values: list[Any]) -> list[Any]:
    """The values with numpy's and torch's single ones as Python's. Raises `GroupError` for several in one."""
    if _PLAIN.issuperset(map(type, values)):
        return values
    try:
        return [value.item() if hasattr(value, "item") else value for value in values]
    except (RuntimeError, ValueError) as error:
        shapes = (tuple(value.shape) for value in values if hasattr(value, "item") and np.prod(value.shape) != 1)
        raise GroupError(f"{name}: one value per row is wanted, got one of shape {next(shapes)}") from error


def _alone(id: Any) -> bool:
    """Whether an id is equal to itself alone, or not even that: an object without equality, NaN."""
    if isinstance(id, tuple):
        return any(map(_alone, id))
    kind: Any = type(id)
    return (id == id) is not True or (kind not in _PLAIN and kind.__hash__ is object.__hash__)
