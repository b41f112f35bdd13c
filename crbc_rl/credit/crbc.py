"""Cross-Rollout Bellman Closure: the closure of an empirical process, its finite-depth family, and the credit that it
gives beside the group advantage (paper, eqs. 6 to 10, 13 and 14)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Floats, check_discount, check_positive, check_weights, is_whole
from crbc_rl.credit.rewards import Earned, Reward, check_reward, step_rewards, suffix_returns

Truncation = Literal["failure", "successor"]
Normalise = Literal["anchor", "group"] | None

BETA = 0.98
"""The paper's discount, and "auto"'s in a group without a success."""

FLAT = 1e-12
"""A sigma up to this is rounding: all actions of the anchor have one value."""


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """State values, action values and credit of one process, in the process's own order.

    With S anchors and L pairs: `V` (S,), `Q` (L,), `A` = Q - V (L,), and `sigma` (S,), the standard
    deviation of A under the behaviour mu at each anchor (Proposition 2).
    """

    V: Floats
    Q: Floats
    A: Floats
    sigma: Floats


def closure(
    process: EmpiricalProcess,
    beta: float | Literal["auto"] = BETA,
    depth: int | None = None,
    *,
    horizon: int | Literal["auto"] | None = None,
    truncation: Truncation = "failure",
    reward: Reward = "outcome",
    invalid_cost: float = 0.0,
) -> Closure:
    """Evaluate `process` at its behaviour-policy Bellman fixed point, after `depth` backups, or within a horizon.

    `depth=None` is the full closure: (I - beta M) V = b by one sparse LU, then Q = B V (eq. 9).
    `depth=K` is the K-th member of the finite family: V_K = T^K V_0 and Q_K = B V_(K-1), where V_0
    and Q_0 are the visit-local means of realised suffix returns (eqs. 6 and 10); it needs a process
    built from rollouts, since counts do not contain the suffixes.

    `beta` lies in (0, 1]. At 1 the system is still regular for every group of complete rollouts, since every rollout
    leads from each anchor it visits to a boundary. "auto" is 1 - 1/L for each group, with L the mean length of its
    successes, at least 2, and `BETA` without a success.

    What follows is not in the paper; docs/credit/theory.md says what each option estimates.

    `horizon=H` counts steps: Q_h = B V_(h-1) and V_h = sum_a mu Q_h from V_0 = 0, for h = 1 .. H. A visit at step t has
    H - t steps left. V, Q and A are means over the visits to each anchor. There is nothing to solve. "auto" is the
    length of the longest rollout in a group with a truncated one; a group without has shown no limit, and is closed.
    `truncation="successor"`: the last step of a truncated rollout leads to its final anchor, where some rollout of the
    group left it. By default it leads to failure.
    `reward`: what a step earns. "outcome" is R at the end, "score" the rollout's score at its end, "step" the
    environment's own reward of every step. V = beta (r + M V) in all cases. A truncated step that leads on earns no
    score, since the rollout was not finished.
    `invalid_cost`: what an invalid reply costs at its own step, where a success earns 1. Such a reply changes nothing,
    so without a cost it is worth beta V: nearly as much as the best action, and more than a bad one.

    The concurrent GRAFT (arXiv 2609.28963) has the same value function V. It computes a step's credit as
    gamma V(x) - V(s), followed by GAE over the graph. CRBC computes Q - V, which averages over all observed successors
    of the (anchor, action) pair.

    Raises `CreditError` for options out of range and for a solution whose residual exceeds
    `solve.RESIDUAL_TOLERANCE`, as for counts with a cycle that nothing leaves at beta = 1.
    """
    _check(beta, depth, horizon, truncation)
    check_reward(reward)
    check_weights(invalid_cost=invalid_cost)
    model = _Model.of(process, beta, truncation, reward, invalid_cost)
    if horizon is not None:
        V, Q = _within(model, _limits(process, horizon))
    elif depth is None:
        V, Q = _fixed_point(model)
    else:
        V, Q = _after(model, depth)
    A = Q - V[process.pair_anchor]
    A[process.actions_per_anchor[process.pair_anchor] < 2] = 0.0  # one action: Q = V, rounding aside
    return Closure(V=V, Q=Q, A=A, sigma=np.sqrt(expect(process, A * A)))


def expect(process: EmpiricalProcess, per_pair: Floats) -> Floats:
    """sum_a mu(a|s) f(s, a), shape (S,)."""
    return sum_by(process.pair_anchor, process.pair_count * per_pair, process.num_anchors) / process.anchor_count


def discounts(process: EmpiricalProcess, beta: float | Literal["auto"]) -> float | Floats:
    """`beta` itself, or with "auto" one number per group: 1 - 1/L, L the mean length of its successes."""
    if beta != "auto":
        return float(beta)
    rollouts = process.steps('beta="auto" needs')[0]
    won = rollouts.success.astype(np.float64)
    wins = sum_by(rollouts.group, won, rollouts.num_groups)
    length = sum_by(rollouts.group, won * rollouts.length, rollouts.num_groups)
    mean = np.maximum(length / np.maximum(wins, 1.0), 2.0)
    return np.where(wins > 0.0, 1.0 - 1.0 / mean, BETA)


@dataclass(frozen=True)
class _Model:
    """A process, and what its steps earn: `beta` a number or one per group, `earned` the mean reward of each pair (L,),
    or None for the outcome alone, which is in the counts as the success boundary. `leads_on`: truncated steps keep
    their successors."""

    process: EmpiricalProcess
    beta: float | Floats
    reward: Reward
    earned: Floats | None
    leads_on: bool
    invalid_cost: float

    @classmethod
    def of(
        cls,
        process: EmpiricalProcess,
        beta: float | Literal["auto"],
        truncation: Truncation,
        reward: Reward,
        invalid_cost: float,
    ) -> _Model:
        discount = discounts(process, beta)
        leads_on = truncation == "successor"
        merged = process.with_successors() if leads_on else process
        if reward == "outcome" and not invalid_cost:
            return cls(merged, discount, reward, None, leads_on, 0.0)
        what = f"invalid_cost={invalid_cost} needs" if invalid_cost else f"reward={reward!r} needs"
        rollouts, pair = process.steps(what)
        total = sum_by(pair, step_rewards(rollouts, reward, leads_on, invalid_cost), process.num_pairs)
        return cls(merged, discount, reward, total / process.pair_count, leads_on, invalid_cost)

    @property
    def bounded(self) -> bool:
        """Whether a rollout earns at most 1, at its end alone."""
        return self.reward != "step" and not self.invalid_cost

    def backup(self, V: Floats) -> Floats:
        """(B V)(s, a) = beta (mean reward + sum_x P(x | s, a) V(x)), shape (L,) (eq. 7)."""
        if self.earned is None:
            return self.process.backup(V, self._beta_of_pair)
        return self._beta_of_pair * (self.earned + self.process.P @ np.append(V, (0.0, 0.0)))

    def system(self) -> tuple[Floats, Floats]:
        """b (S,), what each anchor earns in one step, discounted (eq. 8), and beta of each anchor (S,)."""
        beta = self._beta_of_anchor
        b = self.process.b(beta) if self.earned is None else beta * expect(self.process, self.earned)
        return b, beta

    @cached_property
    def _beta_of_pair(self) -> Floats:
        return self._beta_of_anchor[self.process.pair_anchor]

    @cached_property
    def _beta_of_anchor(self) -> Floats:
        if isinstance(self.beta, float):
            return np.full(self.process.num_anchors, self.beta)
        return self.beta[self.process.anchor_group]


def _fixed_point(model: _Model, some: bool = False) -> tuple[Floats, Floats]:
    """V and Q of eq. 9. With `some`, only groups without a truncated rollout are asked for."""
    b, beta = model.system()
    V = np.zeros(len(b))
    if b.any():  # otherwise nothing was earned
        # A group may be truncated in a cycle for good: no success is reached from there.
        closed: Literal["zero", "error"] = "zero" if some or (model.leads_on and model.bounded) else "error"
        from crbc_rl.credit.solve import solve  # here, as scipy takes longer to import than configs to be read

        V = solve(model.process.M, b, beta, closed)
        if model.bounded:
            V = V.clip(0.0, beta)  # the exact solution lies here (Proposition 1)
    return V, model.backup(V)


def _after(model: _Model, depth: int) -> tuple[Floats, Floats]:
    """V_K and Q_K (eq. 10). Q_0(s, a) is the mean of the suffix returns over the visits to (s, a) (eq. 6)."""
    process = model.process
    rollouts, pair = process.steps("a finite depth needs")
    returns = suffix_returns(
        rollouts, model.beta, model.reward, leads_on=model.leads_on, invalid_cost=model.invalid_cost
    )
    Q = sum_by(pair, returns, process.num_pairs) / process.pair_count
    V = expect(process, Q)
    for _ in range(depth):
        Q = model.backup(V)
        V = expect(process, Q)
    return V, Q


def _limits(process: EmpiricalProcess, horizon: int | Literal["auto"]) -> NDArray[np.int64]:
    """The number of steps after which each group's rollouts are cut; 0 for a group without a limit."""
    rollouts = process.steps("a horizon needs")[0]
    first = np.flatnonzero(np.diff(rollouts.group, prepend=-1))
    longest = np.maximum.reduceat(rollouts.length, first)
    if horizon == "auto":
        return np.where(np.logical_or.reduceat(rollouts.truncated, first), longest, 0)
    if longest.max() > horizon:
        raise CreditError(
            f"horizon must be at least the length of every rollout, got {horizon}; one has {longest.max()}"
        )
    return np.full(len(longest), horizon)


def _within(model: _Model, limit: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The means of V_h and Q_h over the visits to each anchor, h the steps left at the visit, and the fixed point in
    groups without a limit."""
    process = model.process
    rollouts = process.steps()[0]
    open_ended = limit[process.anchor_group] == 0
    mean_V, mean_Q = np.zeros(process.num_anchors), np.zeros(process.num_pairs)
    if open_ended.any():
        V, Q = _fixed_point(model, some=True)
        mean_V[open_ended] = V[open_ended]
        mean_Q = np.where(open_ended[process.pair_anchor], Q, 0.0)
    limits = limit[rollouts.group[rollouts.rollout]]
    left = np.where(limits == 0, 0, limits - rollouts.step)
    order = np.argsort(left, kind="stable")
    ends = np.cumsum(np.bincount(left))
    V = np.zeros(process.num_anchors)
    for h in range(1, len(ends)):
        Q = model.backup(V)
        V = expect(process, Q)
        visits = np.bincount(rollouts.anchor[order[ends[h - 1] : ends[h]]], minlength=process.num_anchors)
        share = visits / process.anchor_count
        mean_V += share * V
        mean_Q += share[process.pair_anchor] * Q
    return mean_V, mean_Q


def _check(beta: object, depth: object, horizon: object, truncation: object) -> None:
    if beta != "auto":
        check_discount("beta", beta)
    if depth is not None and not (is_whole(depth) and depth >= 0):
        raise CreditError(f"depth must be None (the full closure) or an integer >= 0, got {depth!r}")
    if horizon not in (None, "auto") and not (is_whole(horizon) and horizon >= 1):
        raise CreditError(f'horizon must be None, "auto" or an integer >= 1, got {horizon!r}')
    if depth is not None and horizon is not None:
        raise CreditError("depth and horizon are two ways to evaluate a process; give one of them")
    if truncation not in get_args(Truncation):
        raise CreditError(f"truncation must be one of {', '.join(get_args(Truncation))}; got {truncation!r}")


# ---- the credit of a step (eqs. 13 and 14) ----------------------------------------------------------------


def step_credit(
    process: EmpiricalProcess,
    beta: float | Literal["auto"] = BETA,
    depth: int | None = None,
    sigma_min: float = 0.1,
    *,
    normalise: Normalise = "anchor",
    horizon: int | Literal["auto"] | None = None,
    truncation: Truncation = "failure",
    reward: Reward = "outcome",
    invalid_cost: float = 0.0,
) -> Floats:
    """A_S(s, a) = 1{|A(s)| >= 2} (Q - V) / max(sigma(s), sigma_min), shape (L,) (eq. 13), of the pairs of `process`.

    Each depth is normalised by its own sigma. Mathematically the gate changes nothing, since with one action Q = V. It
    removes rounding errors. `normalise="group"` divides by one number for the whole group, the root of the mean of
    sigma(s)^2 over its visits to anchors with two or more actions, at least `sigma_min`, which is above 0. None does
    not divide. `beta`, `depth`, `horizon`, `truncation`, `reward` and `invalid_cost` are `closure`'s. Raises
    `CreditError` for options out of range.
    """
    check_positive("sigma_min", sigma_min)
    if normalise not in ("anchor", "group", None):
        raise CreditError(f"normalise must be anchor, group or None; got {normalise!r}")
    result = closure(
        process, beta, depth, horizon=horizon, truncation=truncation, reward=reward, invalid_cost=invalid_cost
    )
    if normalise is None:
        return result.A
    scale = result.sigma if normalise == "anchor" else _group_scale(process, result)
    return result.A / np.maximum(scale, sigma_min)[process.pair_anchor]


def _group_scale(process: EmpiricalProcess, result: Closure) -> Floats:
    """The root mean square of A over the visits of each group to anchors with two or more actions, by anchor (S,)."""
    group = process.anchor_group
    visits = np.where(process.actions_per_anchor >= 2, process.anchor_count, 0.0)
    total = sum_by(group, visits, int(group.max()) + 1)
    squares = sum_by(group, visits * result.sigma**2, len(total))
    return np.sqrt(squares / np.maximum(total, 1.0))[group]


@estimator(w_group=1.0, w_step=5.0, on_success=True)
def crbc(
    process: EmpiricalProcess,
    earned: Earned,
    *,
    beta: float | Literal["auto"] = BETA,
    depth: int | None = None,
    horizon: int | Literal["auto"] | None = None,
    truncation: Truncation = "failure",
    normalise: Normalise = "anchor",
    sigma_min: float = 0.1,
    invalid_cost: float = 0.0,
) -> Floats:
    """The step credit of each step's pair, (n,); with the group's term it is eq. 14.

    `normalise` and `sigma_min` are `step_credit`'s options, the others `closure`'s; the defaults are the paper's. The
    invalid penalty enters A_G only, since the closure's outcome is binary; `invalid_cost` is its like in the closure.
    `w_group=0, w_step=1` gives the step credit alone. `group_reward="step"` keeps the outcome in the closure beside a
    group advantage of the environment's own rewards.
    """
    by_pair = step_credit(
        process,
        beta,
        depth,
        sigma_min,
        normalise=normalise,
        horizon=horizon,
        truncation=truncation,
        reward=earned.reward,
        invalid_cost=invalid_cost,
    )
    return by_pair[process.steps()[1]]


crbc_plus = crbc.variant("crbc_plus", w_group=0.05, horizon="auto", truncation="successor", sigma_min=0.2)
"""`crbc` with the options that the accuracy study supports best (docs/credit/accuracy.md)."""
