"""HGPO: visits compared within nested groups of increasingly long shared history (arXiv 2602.22817)."""

from __future__ import annotations

import numpy as np

from anchors import EmpiricalProcess
from anchors.columns import Floats, Ints
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Mode, check_discount, check_mode, check_positive, check_weights, normalise
from crbc_rl.credit.rewards import Earned


@estimator()
def hgpo(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    gamma: float = 0.95,
    history: int = 2,
    alpha: float = 1.0,
    first_weight: float = 1.0,
    mode: Mode = "mean_std_norm",
) -> Floats:
    """A weighted mean over k = 1 .. history + 1 of advantages among visits with the same last k anchors.

    A visit's k-th group contains the visits with the same last k anchors, its own included. Steps before the k-th have
    no k-th group. The advantage in a group is GiGPO's, with the population standard deviation. Level k has the weight
    (first_weight + k - 1)^alpha, renormalised over the levels with a nonzero advantage, since a group of one and a flat
    group carry no information. The method has no trajectory-level term, so a visit without such a level gets zero.

    `first_weight` is 1 in the method's description, weights 1, 2, 3; the public code has 2, 3, 4. Its scripts use
    "mean_norm" on WebShop. Returns are GiGPO's.
    """
    check_discount("gamma", gamma)
    check_weights(alpha=alpha)
    check_mode(mode)
    if isinstance(history, bool) or not isinstance(history, int | np.integer) or history < 0:
        raise CreditError(f"history must be an integer >= 0, got {history!r}")
    check_positive("first_weight", first_weight)
    rollouts, returns = earned.rollouts, earned.returns(gamma)
    rows, context = np.arange(len(returns)), rollouts.anchor
    age = rollouts.length[rollouts.rollout] - rollouts.remaining
    total, weights = np.zeros(len(returns)), np.zeros(len(returns))
    for k in range(1, history + 2):
        if k > 1:
            rows, context = _lengthen(rows[age[rows] >= k - 1], rows, context, rollouts.anchor)
        if not rows.size:
            break
        level = normalise(returns[rows], context, int(context.max()) + 1, mode, ddof=0)
        weight = np.where(level == 0.0, 0.0, (first_weight + k - 1) ** alpha)
        total[rows] += weight * level
        weights[rows] += weight
    return np.divide(total, weights, out=total, where=weights > 0)


def _lengthen(rows: Ints, before: Ints, context: Ints, anchor: Ints) -> tuple[Ints, Ints]:
    """Contexts one anchor longer, for `rows`: the context of the previous step, known for the rows `before`, and the
    step's own anchor, renumbered."""
    previous = context[np.searchsorted(before, rows - 1)]
    return rows, np.unique(previous * (int(anchor.max()) + 1) + anchor[rows], return_inverse=True)[1]
