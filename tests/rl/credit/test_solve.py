"""The solver: LU where factors stay sparse, the iteration elsewhere, and cycles that nothing leaves."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_groups import read
from strategies import group, random_group

from anchors import EmpiricalProcess, RolloutGroup, Sparse, TransitionCounts
from benchmarks import systems
from crbc_rl import credit
from crbc_rl.credit import solve

BETAS = [1e-6, 0.5, 0.98, 0.999, 1.0]
NEVER, ALWAYS = 10**9, -1
"""Values of `solve.WIDE`: nothing is iterated, and everything is."""
LONG = [
    systems.chain(5_000),
    systems.star(5_000),
    systems.tree(5_000),
]


def solved(system, beta, b=None, closed="error"):
    """V, after its residual has been looked at once more."""
    M, reached = system
    b = beta * reached if b is None else b
    V = solve.solve(M, b, np.full(len(b), beta), closed)
    if closed == "error":
        assert np.abs(b + beta * (M @ V) - V).max() <= 1e-12 * max(1.0, np.abs(V).max())
    return V


def from_edges(edges, size, reached=()):
    """M of edges (from, to, probability), and what earns."""
    row, col, data = (np.array(column) for column in zip(*sorted(edges), strict=True))
    b = np.zeros(size)
    b[list(reached)] = 1.0
    return Sparse(row, col, data.astype(np.float64), (size, size)), b


@pytest.mark.parametrize("beta", [0.5, 0.98, 1.0])
def test_iterating_and_factorising_agree(monkeypatch, beta):
    rng = np.random.default_rng(0)
    process = EmpiricalProcess.from_groups([random_group(rng) for _ in range(100)])
    system = process.M, process.b(1.0)
    dense = np.linalg.solve(np.eye(process.num_anchors) - beta * process.M.toarray(), process.b(beta))
    for wide in (NEVER, ALWAYS):
        monkeypatch.setattr(solve, "WIDE", wide)
        np.testing.assert_allclose(solved(system, beta), dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [BETAS[0], 0.98, 1.0])
@pytest.mark.parametrize(
    "system",
    [
        systems.random_graph(700),
        systems.random_graph(2_000, actions=2),
        systems.grid(40),
        systems.grid(40, drift=5),
        systems.grid(5, 600),
        systems.clusters(8, 300),
        systems.together([systems.random_graph(600, seed=seed) for seed in range(3)]),
    ],
    ids=["graph", "sparse graph", "grid", "drift", "strip", "clusters", "groups"],
)
def test_wide_blocks_are_iterated_and_equal_their_factorisation(monkeypatch, system, beta):
    found = solved(system, beta)
    monkeypatch.setattr(solve, "_iterate", None)
    monkeypatch.setattr(solve, "WIDE", NEVER)
    atol = 1e-11 if beta < 1.0 else 1e-8  # what a residual of 1e-13 leaves where a walk takes 10,000 steps
    np.testing.assert_allclose(found, solved(system, beta), rtol=0, atol=atol)


@pytest.mark.full
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: systems.random_graph(10_000),
        lambda: systems.random_graph(100_000),
        lambda: systems.grid(200),
        lambda: systems.grid(316),
        lambda: systems.grid(316, drift=5),
        lambda: systems.grid(2, 50_000),
        lambda: systems.chain(100_000),
        lambda: systems.star(100_000),
        lambda: systems.clusters(100, 1_000),
        lambda: systems.together([systems.random_graph(1_500, seed=seed) for seed in range(64)]),
    ],
)
def test_the_worst_cases_are_solved(make, beta):
    V = solved(make(), beta)
    assert 0.0 < V.max() <= beta + 1e-9


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("system", LONG, ids=["chain", "star", "tree"])
def test_chains_stars_and_trees_are_factorised_however_long(monkeypatch, system, beta):
    monkeypatch.setattr(solve, "_iterate", None)
    V = solved(system, beta)
    assert 0.0 < V.max() <= beta * (1.0 + 1e-12)


@pytest.mark.parametrize("beta", [0.98, 1.0])
def test_a_narrow_block_beside_a_wide_one_has_the_bits_it_has_alone(beta):
    small = [systems.random_graph(40, seed=seed) for seed in range(6)]
    alone = solved(systems.together(small), beta)
    beside = solved(systems.together([*small[:3], systems.grid(40), *small[3:]]), beta)
    np.testing.assert_array_equal(np.delete(beside, np.s_[120 : 120 + 1600]), alone)


def test_recorded_groups_are_factorised(monkeypatch):
    monkeypatch.setattr(solve, "_iterate", None)
    for recorded in read():
        process = EmpiricalProcess.from_group(RolloutGroup([rollout.rollout() for rollout in recorded.rollouts]))
        credit.closure(process, beta=1.0)


def test_where_iterating_makes_no_progress_the_factorisation_takes_over(monkeypatch):
    system = systems.grid(40)
    monkeypatch.setattr(solve, "WIDE", NEVER)
    direct = solved(system, 0.98)
    monkeypatch.setattr(solve, "WIDE", ALWAYS)
    monkeypatch.setattr(solve, "gmres", lambda _, residual, **rest: (0.1 * residual, 0))
    np.testing.assert_allclose(solved(system, 0.98), direct, rtol=0, atol=1e-12)


def test_numbers_that_are_none_end_the_iteration():
    M, reached = systems.grid(40)
    assert solve._iterate(solve._system(M.row, M.col, M.data, len(reached)), np.full(len(reached), np.nan)) is None


def test_two_earning_anchors_do_not_stop_the_iteration(monkeypatch):
    """BiCGSTAB, with a residual as sparse as b for its shadow, breaks down here after one iteration."""
    M, reached = systems.random_graph(2_000)
    b = np.zeros_like(reached)
    b[[0, 1_000]] = 1.0
    V = solved((M, reached), 0.98, b)
    monkeypatch.setattr(solve, "WIDE", NEVER)
    np.testing.assert_allclose(V, solved((M, reached), 0.98, b), rtol=0, atol=1e-10)


@pytest.mark.parametrize("wide", [NEVER, ALWAYS], ids=["factorised", "iterated"])
@pytest.mark.parametrize("beta", [0.9, 1.0])
def test_rewards_of_any_sign_and_size_are_solved(monkeypatch, beta, wide):
    monkeypatch.setattr(solve, "WIDE", wide)
    M, reached = systems.grid(12)
    b = np.random.default_rng(1).normal(scale=100.0, size=len(reached))
    dense = np.linalg.solve(np.eye(len(b)) - beta * M.toarray(), b)
    np.testing.assert_allclose(solved((M, reached), beta, b), dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wide", [NEVER, ALWAYS], ids=["factorised", "iterated"])
def test_an_anchor_on_a_chain_that_earns_keeps_what_it_earns(monkeypatch, wide):
    monkeypatch.setattr(solve, "WIDE", wide)
    system = from_edges([(0, 1, 1.0), (1, 2, 1.0), (3, 3, 1.0), (2, 0, 0.5)], 4)
    b = np.array([0.0, -2.0, 1.0, 3.0])
    V = solved(system, 0.5, b)
    np.testing.assert_allclose(V[3], 6.0, rtol=1e-12)
    np.testing.assert_allclose(V[2], 1.0 + 0.25 * V[0], rtol=1e-12)
    np.testing.assert_allclose(V[:2], [0.5 * V[1], -2.0 + 0.5 * V[2]], rtol=1e-12)


@pytest.mark.parametrize("beta", [0.9, 1.0])
def test_a_chain_is_followed_to_its_end(beta):
    path = " ".join(f"{i}:go" for i in range(300))
    process = EmpiricalProcess.from_group(group(f"{path} +", "0:stay -"))
    np.testing.assert_allclose(credit.closure(process, beta).V[1:], beta ** np.arange(299.0, 0, -1), rtol=1e-12)


# ---- cycles that nothing leaves -------------------------------------------------------------------


@pytest.mark.parametrize("wide", [NEVER, ALWAYS], ids=["factorised", "iterated"])
@pytest.mark.parametrize("loop", ["p", "pq", "pqr", "pqrstu"])
def test_a_closed_chain_is_worth_nothing_below_one_and_refused_at_one(monkeypatch, loop, wide):
    monkeypatch.setattr(solve, "WIDE", wide)
    round_and_round = {(here, "a", there): 1 for here, there in zip(loop, loop[1:] + loop[0], strict=True)}
    counts = TransitionCounts({("z", "a", "p"): 1, ("z", "b", "<success>"): 1, **round_and_round})
    process = counts.process()
    assert process.anchors == (*loop, "z")
    np.testing.assert_array_equal(credit.closure(process, 0.9).V, [*[0] * len(loop), 0.45])
    with pytest.raises(credit.CreditError, match="a cycle that nothing leaves"):
        credit.closure(process, 1.0)


@pytest.mark.parametrize("wide", [NEVER, ALWAYS], ids=["factorised", "iterated"])
@pytest.mark.parametrize("beta", [0.5, 0.98, 1.0])
@pytest.mark.parametrize("part", [(1, 2), (1, 2, 3)], ids=["exactly singular", "singular to rounding"])
def test_a_closed_part_that_branches_is_worth_exactly_nothing(monkeypatch, part, beta, wide):
    monkeypatch.setattr(solve, "WIDE", wide)
    closed = [(i, j, 1 / len(part)) for i in part for j in part]
    system = from_edges([(0, 0, 0.25), (0, 1, 0.25), (4, 2, 0.5), (4, 0, 0.5), *closed], 5, reached=[0])
    system = system[0], 0.5 * system[1]
    V = solved(system, beta, closed="zero")
    value = 0.5 * beta / (1 - 0.25 * beta)
    np.testing.assert_allclose(V, [value, 0, 0, 0, 0.5 * beta * value], rtol=1e-13)
    np.testing.assert_array_equal(V[list(part)], 0.0)
    if beta == 1.0:
        with pytest.raises(credit.CreditError, match="singular at beta = 1: the counts hold a cycle"):
            solved(system, beta)
    else:
        np.testing.assert_array_equal(solved(system, beta), V)


def test_what_leads_to_nothing_earned_is_worth_exactly_nothing_though_iterated():
    """Three anchors lead to each other only. The way to them is strong, so they share an aggregate with what earns."""
    M, reached = systems.grid(40)
    trios = np.arange(1600, 1900).reshape(100, 3)
    here, there = np.repeat(trios, 3, axis=1).ravel(), np.tile(trios, 3).ravel()
    data = np.where(M.row < 100, 0.1 * M.data, M.data)
    row, col = np.concatenate((M.row, np.arange(100), here)), np.concatenate((M.col, trios[:, 0], there))
    order = np.lexsort((col, row))
    data = np.concatenate((data, np.full(100, 0.9), np.full(900, 1 / 3)))[order]
    reached = np.append(np.where(np.arange(1600) < 100, 0.1 * reached, reached), np.zeros(300))
    V = solved((Sparse(row[order], col[order], data, (1900, 1900)), reached), 0.98)
    np.testing.assert_array_equal(V[1600:], 0.0)
    assert V[:1600].any()


def test_only_groups_at_beta_one_are_searched_for_closed_cycles():
    M, b = from_edges([(0, 0, 1.0), (1, 1, 0.5)], 2, reached=[1])
    np.testing.assert_allclose(solve.solve(M, b, np.array([0.9, 1.0])), [0.0, 2.0])
    with pytest.raises(credit.CreditError, match="singular"):
        solve.solve(M, b, np.array([1.0, 0.9]))


@pytest.mark.parametrize("error", [1e-9, 1.0, float("nan")])
def test_a_solution_that_does_not_solve_the_system_is_refused(monkeypatch, error):
    process = EmpiricalProcess.from_group(group("s:a m:b s:a +", "s:b m:a -"))
    right = solve._factorise
    monkeypatch.setattr(solve, "_factorise", lambda *system: right(*system) + error)
    with pytest.raises(credit.CreditError, match="left a Bellman residual"):
        credit.closure(process)
