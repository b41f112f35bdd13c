"""The entry points of all estimators: they map rollouts to one advantage per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anchors import EmpiricalProcess, InternedRollouts, RolloutGroup
from crbc_rl.credit.crbc import crbc, crbc_plus
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import GROUP_TERMS, Estimator, nearest
from crbc_rl.credit.g2po import g2po
from crbc_rl.credit.gagpo import gagpo
from crbc_rl.credit.gigpo import gigpo
from crbc_rl.credit.graft import graft
from crbc_rl.credit.graphgpo import graphgpo
from crbc_rl.credit.groups import Floats as Floats
from crbc_rl.credit.groups import is_number
from crbc_rl.credit.hgpo import hgpo
from crbc_rl.credit.rtmc import rtmc
from crbc_rl.credit.scores import scores
from crbc_rl.credit.trust import trusting

Method = Callable[..., Floats]
"""An estimator: a function that maps a process built from rollouts, and keyword options, to one value per step, (n,)
float64, in the order of `EmpiricalProcess.steps`."""

METHODS: dict[str, Estimator] = {
    "crbc": trusting(crbc),
    "crbc_plus": trusting(crbc_plus),
    **{name: Estimator(name, None) for name in GROUP_TERMS},
    "gigpo": gigpo,
    "hgpo": hgpo,
    "graphgpo": graphgpo,
    "g2po": g2po,
    "rtmc": rtmc,
    "gagpo": gagpo,
    "graft": graft,
}
"""Every estimator by name: what it needs is in the rollouts. `advantages` also takes a `Method` of one's own, and the
name "scores", whose numbers the caller gives."""

_NAMED: dict[str, Estimator] = {**METHODS, "scores": scores}


def advantages(
    group: RolloutGroup, /, method: str | Method = "crbc", *, scale: float = 1.0, **config: Any
) -> list[Floats]:
    """The advantage of every step of `group`, times `scale`: one float64 array (length,) per rollout.

    `method` is a name of `METHODS` or "scores", or a function. `config` are its keyword options. `scale` is finite and
    not 0. Raises `CreditError` for what is unknown or out of range.
    """
    if not isinstance(group, RolloutGroup):
        raise CreditError(
            f"advantages takes one RolloutGroup, got {_kind(group)}: advantages_batch takes several, and "
            "advantages_from_rows the rows of a table"
        )
    return advantages_batch([group], method, scale=scale, **config)[0]


def advantages_batch(
    groups: Sequence[RolloutGroup] | InternedRollouts,
    /,
    method: str | Method = "crbc",
    *,
    scale: float = 1.0,
    **config: Any,
) -> list[list[Floats]]:
    """`advantages` of all the `groups` of one update, computed together: one list per group.

    The groups do not affect each other; they only share one linear solve. Interned rollouts are the fast path, since no
    string is processed. `method`, `scale` and `config` are as in `advantages`, and so are the errors.
    """
    if not isinstance(groups, InternedRollouts):
        check_options(method, config)  # before the strings are read
        if not isinstance(groups, Sequence) or not all(isinstance(group, RolloutGroup) for group in groups):
            raise CreditError(
                f"advantages_batch takes a list of RolloutGroup or InternedRollouts, got {_kind(groups)}; "
                "advantages_from_rows takes the rows of a table"
            )
        groups = InternedRollouts.from_groups(groups)
    return groups.split(advantages_interned(groups, method, scale=scale, **config))


def advantages_interned(
    rollouts: InternedRollouts, /, method: str | Method = "crbc", *, scale: float = 1.0, **config: Any
) -> Floats:
    """The advantage of every step of `rollouts`, times `scale`, one value per row of the table, shape (n,). `method`,
    `config` and the errors are as in `advantages`."""
    check_scale(scale)
    estimator = estimator_of(method)
    estimator.check(config)
    return scale * estimator(EmpiricalProcess.from_interned(rollouts), **config)


def check_scale(scale: object) -> None:
    """Raise `CreditError` for a scale that would leave nothing of what the steps earned."""
    if not is_number(scale) or not scale:
        raise CreditError(f"scale must be a finite number and not 0, got {scale!r}")


def check_options(method: str | Method, config: dict[str, Any]) -> None:
    """Raise `CreditError` for an unknown `method`, or an option in `config` that the method does not have."""
    estimator_of(method).check(config)


def estimator_of(method: str | Method) -> Estimator:
    """The estimator that `method` names, or that of a function. Raises `CreditError` for an unknown name."""
    if not isinstance(method, str):
        return Estimator.of(method)
    if ":" in method:
        raise CreditError(f"credit method {method!r}: pass the function itself; its place is a name in configs alone")
    if method not in _NAMED:
        raise CreditError(f"unknown credit method {method!r}{nearest(method, _NAMED)}")
    return _NAMED[method]


def _kind(value: Any) -> str:
    """What something is, for a message: "a list of list"."""
    if isinstance(value, list | tuple) and value:
        return f"a {type(value).__name__} of {type(value[0]).__name__}"
    return f"a {type(value).__name__}"
