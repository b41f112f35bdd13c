"""What the paper proves about the closure's credit, as figures of one process (Propositions 1 and 2, Corollary 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anchors import EmpiricalProcess, Sparse, sum_by
from crbc_rl.credit.crbc import BETA, FLAT, Closure, closure, expect, step_credit
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import Floats, Ints, check_discount
from crbc_rl.credit.rewards import powers

DEPTHS = (1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class DepthError:
    """How far the credit at `depth` is from the closure's, in max norms.

    `value`: |V - V_K|. `credit`: |A - A_K|. `bound`: E_K = 2 beta^K / (1 - beta) |T V_0 - V_0|, which `credit` never
    exceeds from depth 1 on (eq. 12); infinite at depth 0. `certified`: at how many anchors E_K <= sigma(s).
    """

    depth: int
    value: float
    credit: float
    bound: float
    certified: int


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """A reweighting nu = mu (1 + alpha w A~) of the behaviour, at the largest `alpha` at which nu is a policy.

    `gain`: V^nu - V by anchor (S,), as Proposition 2 gives it (eq. 11). `start`: its mean over the rollouts' first
    steps. `alpha` is infinite and `gain` 0 where the credit A~ is 0 everywhere. Several groups share one `alpha`.
    """

    name: str
    alpha: float
    gain: Floats
    start: float


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """The figures of one process at discount `beta`, in its own order of S anchors and L pairs. `print` shows a table.

    `residual`: T V_0 - V_0 by anchor (S,), and `pair_residual`: B V_0 - Q_0 by pair (L,) (eq. 19). `sigma` (S,).
    `certified` (S,): the smallest depth K >= 1 with E_K <= sigma(s), from which on Corollary 3 promises that the credit
    at depth K points where the closure's does; -1 where sigma(s) is 0, so that there is nothing to promise.
    `depths`: the errors at each depth. `directions`: the closure's credit, the step credit, and the credit at each
    depth.
    """

    beta: float
    residual: Floats
    pair_residual: Floats
    sigma: Floats
    certified: Ints
    depths: tuple[DepthError, ...]
    directions: tuple[Direction, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def diagnose(process: EmpiricalProcess, beta: float = BETA, depths: Sequence[int] = DEPTHS) -> Diagnosis:
    """How far each depth is from the closure, from which depth on its credit is certified, and what following the
    credit gains on the process.

    `process` is built from rollouts, since depths begin at realised returns. `beta` is the closure's discount. Raises
    `CreditError` for one of `depths` that is no integer >= 0 and for a beta outside (0, 1): at 1 there is no bound.
    """
    check_discount("beta", beta)
    if beta == 1.0:
        raise CreditError(f"beta must be below 1 here, got {beta!r}: the bound is divided by 1 - beta")
    if None in depths:
        raise CreditError("depth must be an integer >= 0 here, got None: every depth is compared with the closure")
    full, first = closure(process, beta), closure(process, beta, 0)
    pair_residual = process.backup(first.V, beta) - first.Q
    residual = expect(process, pair_residual)
    scale = 2.0 / (1.0 - beta) * float(np.abs(residual).max())
    certified = _certified(full.sigma, scale, beta)
    members = {depth: closure(process, beta, depth) for depth in depths}
    errors = [_error(depth, member, full, scale * float(powers(beta, depth))) for depth, member in members.items()]
    credits = {"closure": full.A, "step credit": step_credit(process, beta)}
    credits |= {f"depth {depth}": member.A for depth, member in members.items()}
    directions = [_direction(process, full, name, credit, beta) for name, credit in credits.items()]
    return Diagnosis(beta, residual, pair_residual, full.sigma, certified, tuple(errors), tuple(directions))


def _certified(sigma: Floats, scale: float, beta: float) -> Ints:
    """The smallest K >= 1 with scale beta^K <= sigma(s), (S,); -1 where sigma(s) is 0."""
    open_ = sigma > FLAT
    ratio = np.where(open_, sigma, 1.0) / max(scale, np.finfo(np.float64).tiny)
    depth = np.maximum(np.ceil(np.log(ratio) / np.log(beta)), 1.0).astype(np.int64)
    depth += scale * beta**depth > np.where(open_, sigma, np.inf)  # the logarithms may be off by a rounding
    return np.where(open_, depth, -1)


def _error(depth: int, member: Closure, full: Closure, bound: float) -> DepthError:
    bound = bound if depth else np.inf
    certified = (bound <= full.sigma) & (full.sigma > FLAT)
    value, error = np.abs(full.V - member.V).max(), np.abs(full.A - member.A).max()
    return DepthError(depth, float(value), float(error), bound, int(certified.sum()))


def _direction(process: EmpiricalProcess, full: Closure, name: str, credit: Floats, beta: float) -> Direction:
    """`credit` is w A~, centred under mu at each anchor."""
    least = float(credit.min())
    if least >= -FLAT:
        return Direction(name, np.inf, np.zeros(process.num_anchors), 0.0)
    alpha = -1.0 / least
    nu = process.mu * np.maximum(1.0 + alpha * credit, 0.0)
    from crbc_rl.credit.solve import solve

    gain = alpha * solve(_induced(process, nu), expect(process, credit * full.A), np.full(process.num_anchors, beta))
    rollouts = process.steps()[0]
    return Direction(name, alpha, gain, float(gain[rollouts.anchor[rollouts.starts]].mean()))


def _induced(process: EmpiricalProcess, nu: Floats) -> Sparse:
    """M^nu(s, s') = sum_a nu(a | s) P(s' | s, a), S x S."""
    P, size = process.P, process.num_anchors
    inner = (P.col < size) & (nu[P.row] > 0.0)
    code = process.pair_anchor[P.row[inner]] * size + P.col[inner]
    places, entry = np.unique(code, return_inverse=True)
    data = sum_by(entry, nu[P.row[inner]] * P.data[inner], len(places))
    return Sparse(places // size, places % size, data, (size, size))


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    open_ = diagnosis.certified > 0
    yield f"beta {diagnosis.beta}; {len(diagnosis.sigma)} anchors, {open_.sum()} with actions of different value"
    yield (
        f"residual of the visit means: {np.abs(diagnosis.residual).max():.3g} by anchor, "
        f"{np.abs(diagnosis.pair_residual).max():.3g} by pair"
    )
    yield ""
    yield f"{'depth':>11} {'|V - V_K|':>10} {'|A - A_K|':>10} {'E_K':>10} {'certified':>10}"
    for row in diagnosis.depths:
        share = f"{row.certified} of {open_.sum()}"
        yield f"{row.depth:>11} {row.value:>10.3g} {row.credit:>10.3g} {row.bound:>10.3g} {share:>10}"
    if open_.any():
        low, mid, high = np.quantile(diagnosis.certified[open_], (0.0, 0.5, 1.0), method="inverted_cdf")
        yield f"certified from depth {low} (first anchor), {mid} (half of them), {high} (all)"
    yield ""
    yield f"{'direction':>11} {'alpha':>10} {'start':>10} {'least gain':>10}"
    for way in diagnosis.directions:
        yield f"{way.name:>11} {way.alpha:>10.3g} {way.start:>+10.3g} {way.gain.min():>+10.3g}"
