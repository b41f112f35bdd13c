"""Reads and checks the columns of a table of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchors.rollout import GroupError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def size_of(values: ArrayLike) -> int:
    """The number of values of a column: a list, an array or a torch tensor."""
    return int(values.numel()) if hasattr(values, "numel") else np.size(values)


def private(values: Any) -> Any:
    """A column as an array that nobody else can write to: `values` itself where that is so, else a copy.

    None, a list or a tensor is returned as it is, because reading it makes an array anyway.
    """
    if values is None or isinstance(values, list | tuple) or hasattr(values, "detach"):
        return values
    array = np.asarray(values)
    return array if array.flags.owndata and not array.flags.writeable else array.copy()


def frozen(column: NDArray[Any]) -> NDArray[Any]:
    """A new array, made read-only: a table takes it without a copy."""
    column.flags.writeable = False
    return column


def _column(name: str, values: ArrayLike, size: int) -> NDArray[Any]:
    if hasattr(values, "detach"):  # a torch tensor, perhaps on a GPU, with a gradient or in bfloat16
        values = values.detach().cpu().tolist()
    column = np.asarray(values)
    if column.shape != (size,):
        raise GroupError(f"{name}: expected {size} values in one dimension, got shape {column.shape}")
    return column


def integers(name: str, values: ArrayLike, size: int, least: int = 0) -> Ints:
    column = _column(name, values, size)
    if column.dtype.kind not in "iu" and size:
        raise GroupError(f"{name}: expected integers, got {column.dtype}")
    if column.dtype.kind == "u" and size and column.max() >= 1 << 62:
        raise GroupError(f"{name}: {column.max()} is beyond 2^62")
    whole = column.astype(np.int64, copy=False)
    if size and whole.min() < least:
        at = int(np.argmax(whole < least))
        raise GroupError(f"{name}: entry {at} is {whole[at]}, the least is {least}")
    return whole


def floats(name: str, values: ArrayLike, size: int) -> Floats:
    column = _column(name, values, size)
    if column.dtype.kind not in "biuf":
        raise GroupError(f"{name}: expected numbers, got {column.dtype}")
    return column.astype(np.float64, copy=False)


def flags(name: str, values: ArrayLike, size: int) -> NDArray[np.bool_]:
    column = _column(name, values, size)
    odd = column.dtype != np.bool_ and (column != 0) & (column != 1)
    if np.any(odd):
        at = int(np.argmax(odd))
        what = f"rollout {at}: the outcome" if name == "success" else f"{name}: entry {at}"
        raise GroupError(f"{what} must be binary, got {column.tolist()[at]!r}")
    return column.astype(np.bool_, copy=False)


def renumber(numbers: Ints) -> tuple[Ints, Ints]:
    """The distinct numbers, ascending, and the index of every number among them."""
    if numbers.max() > 8 * len(numbers) + 1024:
        return np.unique(numbers, return_inverse=True)
    present = np.bincount(numbers) > 0  # no sort is needed, because interned numbers are nearly dense
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def look_up(numbers: Ints, known: Ints) -> Ints:
    """The index of every number in the ascending `known`, or -1."""
    if known[-1] == len(known) - 1:
        return np.where(numbers < len(known), numbers, -1)
    place = np.searchsorted(known, numbers).clip(max=len(known) - 1)
    return np.where(known[place] == numbers, place, -1)


def chosen(names: Sequence[str] | None, numbers: Ints) -> tuple[str, ...] | None:
    """The names of the ascending `numbers`. None if there are no names."""
    if names is None:
        return None
    if numbers[-1] >= len(names):
        raise GroupError(f"number {numbers[-1]} has no name; {len(names)} names are given")
    return tuple(names) if len(names) == len(numbers) else tuple(names[i] for i in numbers.tolist())


class Places(TypedDict):
    """Where each row of a table belongs."""

    rollout: Ints
    step: Ints
    length: Ints


def places(length: Ints) -> Places:
    """The columns `rollout`, `step` and `length` of complete rollouts with these lengths."""
    rollout = np.repeat(np.arange(len(length)), length)
    return {
        "rollout": frozen(rollout),
        "step": np.arange(len(rollout)) - np.repeat(np.cumsum(length) - length, length),
        "length": length,
    }


def sum_by(index: Ints, values: Floats, size: int) -> Floats:
    """The sums of `values` (n,) by `index` (n,), which is from 0 to `size` - 1: out[i] is of the rows with index i,
    shape (size,), float64. Without values NumPy would make integers."""
    return np.bincount(index, weights=values, minlength=size).astype(np.float64, copy=False)


# ---- checks of complete rollouts ------------------------------------------------------------------


def check_groups(group: Ints) -> None:
    ahead = np.diff(group, prepend=-1)
    apart = (ahead < 0) | (ahead > 1)
    if apart.any():
        i = int(np.argmax(apart))
        raise GroupError(
            f"rollout {i} is of group {group[i]}; groups are numbered 0, 1, ... and their rollouts are consecutive"
        )


def check_order(rollout: Ints, step: Ints, length: Ints) -> None:
    """Check that every row of every rollout is there once and in order."""
    starts = np.cumsum(length) - length
    if len(rollout) == length.sum():
        expected = np.repeat(np.arange(len(length)), length)
        wrong = (rollout != expected) | (step != np.arange(len(step)) - np.repeat(starts, length))
        if not wrong.any():
            return
    inside = rollout < len(length)
    inside[inside] = step[inside] < length[rollout[inside]]
    if not inside.all():
        i, t = _first(rollout, step, ~inside)
        known = f"that rollout has {length[i]} steps" if i < len(length) else f"there are {len(length)} rollouts"
        raise GroupError(f"rollout {i}, step {t}: no such row; {known}")
    seen = np.bincount(starts[rollout] + step, minlength=int(length.sum()))
    for mask, what in ((seen == 0, "the row is missing"), (seen > 1, "the row is repeated")):
        if mask.any():
            row = int(np.argmax(mask))
            i = int(np.searchsorted(starts, row, side="right")) - 1
            raise GroupError(f"rollout {i}, step {row - starts[i]}: {what}; credit needs complete rollouts")
    i, t = _first(rollout, step, wrong)
    raise GroupError(f"rollout {i}, step {t}: the row is out of order; credit runs before any reordering for batches")


def _first(rollout: Ints, step: Ints, mask: NDArray[np.bool_]) -> tuple[int, int]:
    at = int(np.argmax(mask))
    return int(rollout[at]), int(step[at])


def check_anchors(anchor: Ints, rollout: Ints, group: Ints, length: Ints, final: Ints) -> None:
    """Check that an anchor belongs to one group, and that all rollouts of a group start at the same anchor."""
    owner_of_step = group[rollout]
    owner = np.empty(anchor.max() + 1, dtype=np.int64)
    owner[anchor] = owner_of_step
    shared = owner[anchor] != owner_of_step
    starts = np.cumsum(length) - length
    if shared.any():
        at = int(np.argmax(shared))
        other = int(np.argmax((anchor == anchor[at]) & (owner_of_step != owner_of_step[at])))
        here, there = (f"rollout {rollout[row]}, step {row - starts[rollout[row]]}" for row in (other, at))
        raise GroupError(
            f"{here}: it is of group {owner_of_step[other]}, but its anchor is also one of group "
            f"{owner_of_step[at]} ({there}); anchors match within one group only"
        )
    astray = (final >= 0) & (owner[final] != group)
    if astray.any():
        i = int(np.argmax(astray))
        raise GroupError(
            f"rollout {i}, step {length[i] - 1}: it is of group {group[i]}, but its final anchor is one of "
            f"group {owner[final[i]]}; anchors match within one group only"
        )
    first = anchor[starts]
    leader = first[np.searchsorted(group, group)]
    if (first != leader).any():
        i = int(np.argmax(first != leader))
        raise GroupError(
            f"rollout {i}, step 0: it does not start at the anchor where the first rollout of group "
            f"{group[i]} does; the members of a group share one task and one initial condition"
        )


def check_actions(action: Ints, valid: NDArray[np.bool_], where: Callable[[int], str]) -> None:
    """Check that all malformed replies share one action number, and that nothing else has it."""
    if valid.all():
        return
    label = action[np.argmin(valid)]
    odd = (action == label) == valid
    if odd.any():
        at = int(np.argmax(odd))
        kind = "a well-formed" if valid[at] else "a malformed"
        raise GroupError(
            f"{where(at)}: {kind} reply, and its action is {'' if valid[at] else 'not '}the one of the first "
            "malformed reply; malformed replies share one action, and nothing else is it"
        )


def check_ends(success: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> None:
    """Check that no rollout both succeeds and is truncated."""
    both = success & truncated
    if both.any():
        raise GroupError(
            f"rollout {int(np.argmax(both))}: it cannot both succeed and be truncated; success takes precedence"
        )
