"""GraphGPO: credit by the distance to success on the group's graph (arXiv 2605.26684)."""

from __future__ import annotations

import numpy as np

from anchors import EmpiricalProcess
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Floats, Mode, check_discount, check_mode, normalise
from crbc_rl.credit.rewards import Earned, powers


@estimator(w_group=1.0, rewards=("outcome",), on_success=True)
def graphgpo(process: EmpiricalProcess, earned: Earned, *, omega: float = 0.1, mode: Mode = "mean_std_norm") -> Floats:
    """A_S normalises what a step's successor promises over the visits to the step's anchor.

    d(x) is the smallest number of observed edges from x to success. A step into x gets success_reward omega^d(x), minus
    the penalty where the reply was malformed. This is normalised as GiGPO normalises returns.
    The last step of a success leads to success, d = 0. The last step of a failure leads to its `final_anchor`, an edge
    like any other. Where success is unreachable, d is one more than the group's longest distance to it. This also holds
    where the final anchor is unknown or was never left.

    `omega` in the paper: 0.1 on ALFWorld, 0.2 on WebShop, 0.8 on Sokoban; weights 1 and 1. This is an extremum,
    not an expectation, so it is outside the closure's family: an edge that was lucky once counts like a certain one. A
    group of failures has d = 1 everywhere, so its steps differ by penalties only. A distance to success has no use for
    scores or rewards per step, so `reward` is "outcome".
    """
    check_discount("omega", omega)
    check_mode(mode)
    rollouts = earned.rollouts
    distance = np.append(_distances(process), 0.0)
    lost = _beyond(process, distance[:-1])[rollouts.group]
    successor = np.append(rollouts.anchor[1:], 0)
    last = np.cumsum(rollouts.length) - 1
    successor[last] = np.where(rollouts.success, process.num_anchors, rollouts.final_anchor)
    away = distance[successor]
    nowhere = ~rollouts.success & (rollouts.final_anchor < 0)
    away[last[nowhere]] = np.inf
    away = np.where(np.isinf(away), lost[rollouts.rollout], away)
    promised = earned.success_reward * powers(omega, away.astype(np.int64)) - earned.penalties
    return normalise(promised, rollouts.anchor, process.num_anchors, mode)


def _distances(process: EmpiricalProcess) -> Floats:
    """d(s): the number of edges from every anchor to success, infinite where it is unreachable; shape (S,)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    rollouts, size, counts = process.steps()[0], process.num_anchors, process.state_counts
    kept = counts.col <= size  # all but the failure boundary
    final = np.where(rollouts.success, -1, rollouts.final_anchor)
    ends = rollouts.anchor[np.cumsum(rollouts.length) - 1][final >= 0]
    source = np.concatenate((counts.row[kept], ends))
    target = np.concatenate((counts.col[kept], final[final >= 0]))
    backwards = csr_array((np.ones(len(source)), (target, source)), shape=(size + 1, size + 1))
    steps: Floats = dijkstra(backwards, indices=size, unweighted=True)
    return steps[:size]


def _beyond(process: EmpiricalProcess, distance: Floats) -> Floats:
    """One more than the longest finite distance of each group, 1 where no anchor reaches success."""
    rollouts = process.steps()[0]
    known = np.where(np.isfinite(distance), distance, 0.0)[rollouts.anchor]
    of_rollout = np.maximum.reduceat(known, rollouts.starts)
    return 1.0 + np.maximum.reduceat(of_rollout, np.flatnonzero(np.diff(rollouts.group, prepend=-1)))
