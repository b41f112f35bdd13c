"""What the paper proves, on random groups, and the figures that `credit.diagnose` makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from closures import STITCHED, TIGHT, expect, induced
from strategies import group, random_group

from anchors import EmpiricalProcess, TransitionCounts
from crbc_rl import credit

BETAS = (0.5, 0.9, 0.98)


def processes(seed, number=60):
    """Random processes, each with a generator of its own and a discount."""
    rng = np.random.default_rng(seed)
    for case in range(number):
        yield EmpiricalProcess.from_group(random_group(rng)), BETAS[case % 3], rng


def value_of(process, nu, beta):
    """V^nu by a dense solve."""
    M, won = induced(process, nu)
    return np.linalg.solve(np.eye(len(M)) - beta * M, beta * won)


def centred(process, rng):
    tilde = rng.normal(size=process.num_pairs)
    return tilde - expect(process, tilde)[process.pair_anchor]


def limit(process, xi):
    """alpha_xi of the appendix, straight from its definition; 0 where nothing is to be moved."""
    down = xi < -1e-12
    return (process.mu[down] / -xi[down]).min() if down.any() else 0.0


# ---- by hand --------------------------------------------------------------------------------------


def test_a_group_by_hand():
    # beta = 1/2. V_0: m (0 + 1/2) / 2 = 1/4, u 1/4, s (0 + 1/8) / 2 = 1/16. T V_0: m 1/4, u 1/8, s 1/8.
    # The residual is 1/16 at s, -1/8 at u, so E_K = 2 / 2^K / (1/2) / 8 = 1/2^(K+1).
    # V: m 1/4, u 1/8, s (1/8 + 1/16) / 2 = 3/32. A(s) = +-1/32 and A(m) = +-1/4, so sigma is 1/32 and 1/4.
    # E_1 = 1/4 certifies m, E_4 = 1/32 certifies s.
    process = EmpiricalProcess.from_group(STITCHED)
    found = credit.diagnose(process, 0.5, depths=(1, 4, 5))
    assert process.anchors == ("s", "m", "u")
    np.testing.assert_allclose(found.residual, [1 / 16, 0, -1 / 8], **TIGHT)
    np.testing.assert_allclose(found.sigma, [1 / 32, 1 / 4, 0], **TIGHT)
    assert found.certified.tolist() == [4, 1, -1]
    assert [row.bound for row in found.depths] == pytest.approx([1 / 4, 1 / 32, 1 / 64], abs=1e-15)
    assert [row.certified for row in found.depths] == [1, 2, 2]
    # |V - V_1| = 1/8 - 3/32 at s. A_1(s, .) = 1/8 - 1/8 = 0 for both actions, so |A - A_1| = 1/32.
    assert (found.depths[0].value, found.depths[0].credit) == pytest.approx((1 / 32, 1 / 32), abs=1e-15)


def test_reweighting_by_hand():
    # beta = 1/2: A(s, .) = +-1/8, so alpha = 8 leaves action a alone: V(s) rises from 1/8 to 1/4.
    process = EmpiricalProcess.from_group(group("s:a m:c +", "s:b -"))
    closure, step, *_ = credit.diagnose(process, 0.5, depths=(1,)).directions
    assert (closure.name, closure.alpha, closure.start) == ("closure", pytest.approx(8.0), pytest.approx(1 / 8))
    np.testing.assert_allclose(closure.gain, [1 / 8, 0], **TIGHT)
    assert (step.name, step.alpha) == ("step credit", pytest.approx(1.0))  # divided by sigma = 1/8
    np.testing.assert_allclose(step.gain, closure.gain, **TIGHT)


def test_no_residual_by_anchor_does_not_mean_none_by_pair():
    # V_0 = V: m 1/4, s 1/8. But Q_0(s, .) = 1/4 and 0 where both actions lead to m: A_0 is wrong by 1/8.
    process = EmpiricalProcess.from_group(group("s:a m:c +", "s:b m:c -"))
    found = credit.diagnose(process, 0.5, depths=(0, 1))
    assert np.abs(found.residual).max() == 0.0
    np.testing.assert_allclose(found.pair_residual, [-1 / 8, 1 / 8, 0], **TIGHT)
    zero, one = found.depths
    assert (zero.value, zero.credit, zero.bound) == (0.0, 0.125, np.inf)
    assert (one.value, one.credit, one.bound) == (0.0, 0.0, 0.0)
    assert found.certified.tolist() == [-1, -1]
    assert [way.alpha for way in found.directions] == [np.inf, np.inf, pytest.approx(8.0), np.inf]
    assert not any(way.gain.any() for way in found.directions)


# ---- on random groups -----------------------------------------------------------------------------


def test_backups_converge_from_any_start():
    """Proposition 1: every backup keeps values in [0, beta] and brings them beta times as near."""
    for process, beta, rng in processes(1):
        V = credit.closure(process, beta).V
        at = rng.random(len(V))
        for _ in range(6):
            apart = np.abs(at - V).max()
            at = expect(process, process.backup(at, beta))
            assert at.min() >= 0.0
            assert at.max() <= beta
            assert np.abs(at - V).max() <= beta * apart + 1e-15
        for _ in range(int(np.log(1e-13) / np.log(beta))):
            at = expect(process, process.backup(at, beta))
        np.testing.assert_allclose(at, V, **TIGHT)


def test_a_credit_near_the_closures_is_aligned_with_it():
    """Eq. 25: <A~, A> = sigma^2 - <e, A> >= sigma (sigma - |e|), for any centred A~, and every depth."""
    for process, beta, rng in processes(2):
        full = credit.closure(process, beta)
        credits = [centred(process, rng), *(credit.closure(process, beta, depth).A for depth in (0, 1, 4))]
        for tilde in credits:
            e = full.A - tilde
            inner = expect(process, tilde * full.A)
            np.testing.assert_allclose(inner, full.sigma**2 - expect(process, e * full.A), **TIGHT)
            norm = np.sqrt(expect(process, e * e))
            assert (inner >= full.sigma * (full.sigma - norm) - 1e-12).all()
            assert (norm <= np.abs(e).max() + 1e-12).all()


def test_certified_credit_lowers_no_value():
    """Corollary 3: with weight at certified anchors alone, the credit at depth K gains at every anchor."""
    moved = 0
    for process, beta, rng in processes(3, number=120):
        full, found = credit.closure(process, beta), credit.diagnose(process, beta, depths=())
        for depth in (1, 3, 8, 40, 200):
            trusted = (found.certified <= depth) | (found.sigma == 0.0)
            w = rng.exponential(size=len(trusted)) * trusted
            xi = process.mu * w[process.pair_anchor] * credit.closure(process, beta, depth).A
            alpha = rng.random() * limit(process, xi)
            gain = value_of(process, process.mu + alpha * xi, beta) - full.V
            assert gain.min() >= -1e-12
            moved += gain.max() > 1e-6
    assert moved >= 50


def test_every_figure_is_what_it_is_called():
    improved = 0
    for process, beta, _ in processes(4):
        found = credit.diagnose(process, beta, depths=(0, 1, 2, 7))
        full, first = credit.closure(process, beta), credit.closure(process, beta, 1)
        V0 = credit.closure(process, beta, 0).V
        np.testing.assert_allclose(found.residual, first.V - V0, **TIGHT)
        for row in found.depths:
            part = credit.closure(process, beta, row.depth)
            assert row.value == np.abs(full.V - part.V).max()
            assert row.credit == np.abs(full.A - part.A).max() <= row.bound + 1e-12
            assert row.certified == ((row.bound <= full.sigma) & (full.sigma > 1e-12)).sum()
        scale = 2 / (1 - beta) * np.abs(first.V - V0).max()
        for s in np.flatnonzero(found.certified > 0):
            K = int(found.certified[s])
            assert scale * beta**K <= found.sigma[s]
            assert K == 1 or scale * beta ** (K - 1) > found.sigma[s] * (1 - 1e-12)
        assert ((found.certified == -1) == (found.sigma <= 1e-12)).all()
        credits = [full.A, credit.step_credit(process, beta)]
        credits += [credit.closure(process, beta, depth).A for depth in (0, 1, 2, 7)]
        for way, told in zip(found.directions, credits, strict=True):
            if np.isinf(way.alpha):
                assert np.abs(told).max() <= 1e-12
                continue
            assert way.alpha == pytest.approx(limit(process, process.mu * told), rel=1e-9)
            nu = process.mu * (1 + way.alpha * told)
            assert nu.min() == pytest.approx(0, abs=1e-12)
            gain = value_of(process, nu, beta) - full.V
            np.testing.assert_allclose(way.gain, gain, rtol=1e-9, atol=1e-11)
            assert way.start == pytest.approx(gain[process.rollouts.anchor[0]], abs=1e-11)
            if way.name in ("closure", "step credit"):
                assert way.gain.min() >= -1e-12
                improved += way.gain.max() > 1e-3
    assert improved >= 30


# ---- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [1.0, 1, "auto", 0.0, 1.5, float("nan")])
def test_a_discount_lies_between_zero_and_one(beta):
    with pytest.raises(credit.CreditError, match="beta must"):
        credit.diagnose(EmpiricalProcess.from_group(STITCHED), beta)


@pytest.mark.parametrize("depth", [-1, 1.0, None, True])
def test_a_depth_is_a_number_of_backups(depth):
    with pytest.raises(credit.CreditError, match="depth must"):
        credit.diagnose(EmpiricalProcess.from_group(STITCHED), depths=(1, depth))


def test_counts_alone_have_no_visit_means():
    with pytest.raises(ValueError, match="a finite depth needs rollouts"):
        credit.diagnose(TransitionCounts.from_rollouts(STITCHED.rollouts).process())
