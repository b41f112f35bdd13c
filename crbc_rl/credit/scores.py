"""Credit from numbers that somebody else gives to steps: a process reward model, a judge, a probe of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, InternedRollouts
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Floats, check_discount, is_number
from crbc_rl.credit.groups import normalise as standardise
from crbc_rl.credit.rewards import Earned, discounted_sums

Scores = Any
"""One number per step, flat and in order, or nested like the rollouts (one list per rollout, and of several groups one
list of these per group); or a function of the `InternedRollouts` that returns either."""


@estimator(w_group=1.0)
def scores(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    scores: Scores = None,
    kind: Literal["credit", "reward"] = "credit",
    gamma: float = 1.0,
    normalise: Literal["anchor", "group"] | None = "group",
) -> Floats:
    """A_S, (n,), from `scores`: one number per step, in order, or a function of the `InternedRollouts` that gives them.

    Scores are flat or nested, by rollout or by group and rollout. `kind="credit"`: a score is the step's own credit.
    `kind="reward"`: it is what the step earns, and its credit is sum_k `gamma`^k score_(t+k) over the rest of the
    rollout, gamma in (0, 1]. `normalise` says among which steps that is standardised, (x - mean) / (std + 1e-6) with
    the sample std: all steps of the group, or the visits to one anchor, where a single visit gets 0. None takes it as
    it is. Anchors are those of `process`, and rollouts those of `earned`.

    This is one hook for every method that scores steps by a model or a judge. Raises `CreditError` for scores that are
    missing, that are not one finite number per step, and for options out of range.
    """
    check_discount("gamma", gamma)
    if kind not in ("credit", "reward"):
        raise CreditError(f"kind must be credit or reward, got {kind!r}")
    if normalise not in ("anchor", "group", None):
        raise CreditError(f"normalise must be anchor, group or None; got {normalise!r}")
    rollouts = earned.rollouts
    values = per_step(scores, rollouts)
    if kind == "reward":
        values = discounted_sums(values, gamma, rollouts.remaining)
    if normalise == "anchor":
        values = standardise(values, rollouts.anchor, process.num_anchors, "mean_std_norm")
    elif normalise == "group":
        values = standardise(values, rollouts.group[rollouts.rollout], rollouts.num_groups, "mean_std_norm")
    return values


def per_step(given: Scores, rollouts: InternedRollouts) -> Floats:
    """The scores as one float64 array (n,). Raises `CreditError` that names the place of what is wrong."""
    if given is None:
        raise CreditError("scores: none are given; pass one number per step, or a function of the rollouts")
    values = _listed(given(rollouts) if callable(given) else given)
    if not isinstance(values, list):
        raise CreditError(f"scores: one number per step is wanted, got {type(values).__name__}")
    if any(isinstance(value, list) for some in values if isinstance(some, list) for value in some):
        values = _opened("group", values, np.bincount(rollouts.group), "rollouts")
    if any(isinstance(some, list) for some in values):
        values = _opened("rollout", values, rollouts.length, "steps")
    if len(values) != len(rollouts.rollout):
        raise CreditError(f"scores: {len(values)} scores for {len(rollouts.rollout)} steps")
    for row, value in enumerate(values):
        if not (isinstance(value, bool) or is_number(value)):
            raise CreditError(f"scores: {rollouts.where(row)}: a score is a finite number, got {value!r}")
    return np.array(values, dtype=np.float64)


def _opened(name: str, values: list[Any], sizes: NDArray[np.int64], inside: str) -> list[Any]:
    """The lists of all `name`s as one. Raises `CreditError` unless there is one for each, of its size."""
    if len(values) != len(sizes):
        raise CreditError(f"scores: {len(values)} lists for {len(sizes)} {name}s")
    for i, (some, size) in enumerate(zip(values, sizes.tolist(), strict=True)):
        if not isinstance(some, list) or len(some) != size:
            given = len(some) if isinstance(some, list) else repr(some)
            raise CreditError(f"scores: {name} {i}: {given} given for {size} {inside}")
    return [value for some in values for value in some]


def _listed(values: Any) -> Any:
    """Lists all the way down, from arrays, tensors and sequences."""
    if hasattr(values, "tolist"):
        return values.tolist()
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return [_listed(value) for value in values]
    return values
