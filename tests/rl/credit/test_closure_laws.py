"""The laws the paper proves about the closure, and what it does not depend on."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from closures import TIGHT, assert_close, expect, induced, solved
from hypothesis import given, settings
from hypothesis import strategies as st
from rational import Closure
from strategies import ANCHORS, betas, groups, random_group

from anchors import EmpiricalProcess, Rollout, RolloutGroup, Step, TransitionCounts
from crbc_rl import credit


def check_core_laws(group, beta):
    """Residual, range, centring, the visit mean at depth 0 and the flow identity."""
    process = EmpiricalProcess.from_group(group)
    visits = process.rollouts
    full = credit.closure(process, beta)
    M, b = process.M, process.b(beta)
    assert np.abs(beta * (M @ full.V) + b - full.V).max() <= 1e-12
    assert full.V.min() >= 0
    assert full.V.max() <= beta
    for depth in (None, 0, 2):
        result = full if depth is None else credit.closure(process, beta, depth)
        assert np.abs(expect(process, result.A)).max() <= 1e-12
        assert np.abs(result.sigma**2 - expect(process, result.A**2)).max() <= 1e-12
    at = process.pair_anchor[process.pair]
    returns = np.array([beta ** (len(r) - t) * r.success for r in group.rollouts for t in range(len(r))])
    mean = np.bincount(at, returns) / np.bincount(at)
    assert np.abs(credit.closure(process, beta, 0).V - mean).max() <= 1e-12
    starts = np.cumsum(visits.length) - visits.length
    flow = beta * full.V[at[starts]].sum() + (1 - beta) * full.V[at].sum()
    assert abs(flow - beta * sum(r.success for r in group.rollouts)) <= 1e-11


@pytest.mark.full
def test_the_core_laws_hold_on_ten_thousand_random_groups():
    rng = np.random.default_rng(20260728)
    for case in range(10_000):
        check_core_laws(random_group(rng), (0.98, 1.0, 0.9, 0.5)[case % 4])


@given(groups(), betas | st.just(1.0))
def test_the_core_laws_hold_on_adversarial_groups(drawn, beta):
    check_core_laws(drawn, beta)


@given(groups(), betas, st.sampled_from([None, 0, 1, 2, 3, 5]))
def test_every_depth_equals_a_naive_implementation(drawn, beta, depth):
    V, Q = solved(drawn, beta, depth)
    exact = Closure(drawn, beta, depth)
    assert_close(V, {anchor: float(value) for anchor, value in exact.V.items()})
    assert_close(Q, {pair: float(value) for pair, value in exact.Q.items()})


@given(groups(), st.sampled_from([0.5, 0.8, 0.9]))
@settings(max_examples=25)
def test_deeper_and_deeper_converges_to_the_closure(drawn, beta):
    process = EmpiricalProcess.from_group(drawn)
    full, deep = credit.closure(process, beta), credit.closure(process, beta, depth=300)
    for name in ("V", "Q", "A"):
        np.testing.assert_allclose(getattr(deep, name), getattr(full, name), **TIGHT)


@given(groups(), betas)
def test_the_resolvent_is_non_negative_and_bounded(drawn, beta):
    process = EmpiricalProcess.from_group(drawn)
    inverse = np.linalg.inv(np.eye(len(process.anchors)) - beta * process.M.toarray())
    assert inverse.min() >= -1e-12
    assert inverse.sum(1).max() <= 1 / (1 - beta) * (1 + 1e-12)


@given(groups(), betas, st.integers(1, 6))
def test_the_depth_bound_of_corollary_three_holds(drawn, beta, depth):
    process = EmpiricalProcess.from_group(drawn)
    V0 = credit.closure(process, beta, 0).V
    residual = np.abs(credit.closure(process, beta, 1).V - V0).max()
    gap = np.abs(credit.closure(process, beta).A - credit.closure(process, beta, depth).A).max()
    assert gap <= 2 * beta**depth / (1 - beta) * residual + 1e-12


@given(groups(), betas, st.integers(0, 5))
def test_finite_depth_errors_are_transported_as_the_appendix_says(drawn, beta, depth):
    process = EmpiricalProcess.from_group(drawn)
    full, part, zero = (credit.closure(process, beta, k) for k in (None, depth, 0))
    size = len(process.anchors)
    M, P, at = process.M.toarray(), process.P.toarray()[:, :size], process.pair_anchor
    delta = process.backup(zero.V, beta) - zero.Q  # eq. 19
    np.testing.assert_allclose(credit.closure(process, beta, 1).Q - zero.Q, delta, **TIGHT)
    d = np.linalg.solve(np.eye(size) - beta * M, expect(process, delta))
    np.testing.assert_allclose(full.V - zero.V, d, rtol=0, atol=1e-11)
    carried = np.linalg.matrix_power(beta * M, depth) @ d  # eq. 22
    np.testing.assert_allclose(full.V - part.V, carried, rtol=0, atol=1e-11)
    # Eq. 24 at depth 0, eq. 23 beyond.
    power = np.linalg.matrix_power(beta * M, max(depth - 1, 0))
    expected = beta * P @ power @ d + (delta if depth == 0 else 0.0)
    np.testing.assert_allclose(full.Q - part.Q, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(full.A - part.A, expected - carried[at], rtol=0, atol=1e-11)


@given(groups(), betas)
def test_the_residual_is_the_gap_between_all_and_incoming_evidence(drawn, beta):
    """Eq. 21: delta_0(s, a) = beta sum_x P(x|s,a) [V_0(x) - V_0 as seen arriving from (s, a)]."""
    arriving, count = defaultdict(float), defaultdict(int)
    for played in drawn.rollouts:
        for t, (here, there) in enumerate(zip(played.steps, played.steps[1:], strict=False)):
            arriving[here.anchor, here.action, there.anchor] += beta ** (len(played) - t - 1) * played.success
            count[here.anchor, here.action, there.anchor] += 1
    process = EmpiricalProcess.from_group(drawn)
    V0, Q0 = solved(drawn, beta, 0)
    visited = {(process.anchors[s], a): n for (s, a), n in zip(process.pairs, process.pair_count, strict=True)}
    _, Q1 = solved(drawn, beta, 1)
    for (s, a), n in visited.items():
        gaps = [count[k] * V0[k[2]] - arriving[k] for k in count if k[:2] == (s, a)]
        assert Q1[s, a] - Q0[s, a] == pytest.approx(beta * sum(gaps) / n, abs=1e-12)


@given(groups(), betas, st.integers(0, 2**32 - 1), st.sampled_from(["any", "closure", "step credit"]))
def test_reweighting_moves_values_as_proposition_two_says(drawn, beta, seed, kind):
    rng = np.random.default_rng(seed)
    process = EmpiricalProcess.from_group(drawn)
    full = credit.closure(process, beta)
    mu, at = process.mu, process.pair_anchor
    direction = {"any": rng.normal(size=len(mu)), "closure": full.A, "step credit": credit.step_credit(process, beta)}
    tilde = direction[kind] - expect(process, direction[kind])[at]
    w = rng.exponential(size=len(process.anchors)) * (rng.random(len(process.anchors)) < 0.8)
    xi = mu * w[at] * tilde
    down = xi < -1e-9
    alpha = rng.random() * min((mu[down] / -xi[down]).min(), 1e3) if down.any() else 0.0
    nu = mu + alpha * xi
    M, won = induced(process, nu)
    resolvent = np.linalg.inv(np.eye(len(M)) - beta * M)
    gain = resolvent @ (beta * won) - full.V
    forcing = w * expect(process, tilde * full.A)
    np.testing.assert_allclose(gain, alpha * resolvent @ forcing, rtol=1e-9, atol=1e-11)
    if kind != "any":
        assert gain.min() >= -1e-12


# ---- invariances ----------------------------------------------------------------------------------


@given(groups(), st.sampled_from([None, 0, 2]), st.randoms(use_true_random=False))
def test_shuffling_rollouts_and_renaming_everything_changes_no_value(drawn, depth, random):
    anchor = dict(zip(ANCHORS, random.sample("uvwxyz", len(ANCHORS)), strict=True))
    renamed = [
        Rollout([Step(anchor[s.anchor], f"~{s.action}") for s in played.steps], played.success)
        for played in random.sample(drawn.rollouts, len(drawn))
    ]
    V, Q = solved(drawn, depth=depth)
    other_V, other_Q = solved(RolloutGroup(renamed), depth=depth)
    assert_close(other_V, {anchor[s]: v for s, v in V.items()})
    assert_close(other_Q, {(anchor[s], f"~{a}"): q for (s, a), q in Q.items()})


@given(groups(), st.integers(0, 6), betas | st.just(1.0))
def test_merged_counts_of_two_halves_close_like_the_whole_group(drawn, cut, beta):
    halves = [TransitionCounts.from_rollouts(part) for part in (drawn.rollouts[:cut], drawn.rollouts[cut:])]
    process = (halves[0] + halves[1]).process()
    result = credit.closure(process, beta)
    V, Q = solved(drawn, beta)
    assert_close(dict(zip(process.anchors, result.V, strict=True)), V)
    pairs = [(process.anchors[s], a) for s, a in process.pairs]
    assert_close(dict(zip(pairs, result.Q, strict=True)), Q)


@given(groups())
def test_action_labels_do_not_touch_state_values(drawn):
    one_label = [Rollout([Step(s.anchor, "go") for s in r.steps], r.success) for r in drawn.rollouts]
    assert solved(RolloutGroup(one_label))[0] == pytest.approx(solved(drawn)[0], abs=1e-12)


@given(st.lists(groups(max_members=3), min_size=1, max_size=4), betas, st.sampled_from([None, 0, 3]))
def test_a_batch_of_groups_equals_one_by_one(drawn, beta, depth):
    together = credit.closure(EmpiricalProcess.from_groups(drawn), beta, depth)
    alone = [credit.closure(EmpiricalProcess.from_group(group), beta, depth) for group in drawn]
    np.testing.assert_allclose(together.V, np.concatenate([result.V for result in alone]), **TIGHT)
    np.testing.assert_allclose(together.sigma, np.concatenate([result.sigma for result in alone]), rtol=0, atol=1e-9)
