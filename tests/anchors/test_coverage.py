"""Evidence coverage against a search from every anchor, against derivatives of V, and by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from strategies import group, groups, random_group

from anchors import EmpiricalProcess, GroupError, Rollout, RolloutGroup, Step, TransitionCounts
from anchors.coverage import coverage, coverage_statistics, coverages, eligible
from crbc_rl import credit

DEPTHS = (0, 1, 2, 3, 5, None)

CHAIN = group("s:a m:a n:a +", "s:b m:a -", "s:a n:b -", "s:b k:a -")
"""n is reached from m, m from s; the fourth rollout alone visits k."""


def searched(drawn: RolloutGroup, depth: int | None) -> dict[str, int]:
    """Coverage by anchor key, one breadth-first search for each, straight from the definition."""
    edges: dict[str, set[str]] = {}
    visitors: dict[str, set[int]] = {}
    for j, rollout in enumerate(drawn.rollouts):
        for step in rollout.steps:
            visitors.setdefault(step.anchor, set()).add(j)
        for here, there in pairwise(rollout.steps):
            edges.setdefault(here.anchor, set()).add(there.anchor)
    found = {}
    for start in visitors:
        seen, layer, depth_left = {start}, {start}, len(visitors) if depth is None else depth
        while layer and depth_left:
            layer = {x for s in layer for x in edges.get(s, ())} - seen
            seen |= layer
            depth_left -= 1
        found[start] = len(set.union(*(visitors[s] for s in seen)))
    return found


@pytest.mark.parametrize("depth", DEPTHS)
@given(groups())
def test_coverage_is_what_a_search_from_every_anchor_finds(depth, drawn):
    process = EmpiricalProcess.from_group(drawn)
    assert dict(zip(process.anchors, coverage(process, depth).tolist(), strict=True)) == searched(drawn, depth)


@pytest.mark.parametrize("depth", DEPTHS)
def test_coverage_counts_the_outcomes_that_move_v(depth):
    # V_K is linear in the outcomes and zero without them: V_K of the group in which j alone succeeds is dV_K / dR_j.
    rng = np.random.default_rng(5)
    for _ in range(40):
        drawn = random_group(rng)
        process = EmpiricalProcess.from_group(drawn)
        moves = np.zeros(len(process.anchors), dtype=np.int64)
        for j in range(len(drawn)):
            alone = RolloutGroup([Rollout(r.steps, success=i == j) for i, r in enumerate(drawn.rollouts)])
            moves += credit.closure(EmpiricalProcess.from_group(alone), beta=0.98, depth=depth).V > 1e-13
        np.testing.assert_array_equal(coverage(process, depth), moves)


def test_several_groups_in_one_process_keep_to_themselves():
    rng = np.random.default_rng(6)
    drawn = [random_group(rng) for _ in range(7)]
    together = coverages(EmpiricalProcess.from_groups(drawn), DEPTHS)
    alone = np.concatenate([coverages(EmpiricalProcess.from_group(g), DEPTHS) for g in drawn], axis=1)
    np.testing.assert_array_equal(together, alone)
    statistics = coverage_statistics(EmpiricalProcess.from_groups(drawn))
    parts = [coverage_statistics(EmpiricalProcess.from_group(g)) for g in drawn]
    assert statistics.visits == sum(p.visits for p in parts) and statistics.eligible == sum(p.eligible for p in parts)
    np.testing.assert_array_equal(statistics.coverage, np.concatenate([p.coverage for p in parts], axis=1))
    np.testing.assert_array_equal(statistics.size, np.concatenate([p.size for p in parts]))


def test_a_group_of_more_than_sixty_four_rollouts():
    paths = [f"s:a x{j}:a {'+' if j % 2 else '-'}" for j in range(130)]
    process = EmpiricalProcess.from_group(group(*paths, "s:b x129:a -"))
    by_name = dict(zip(process.anchors, coverage(process, 0).tolist(), strict=True))
    assert by_name["s"] == 131 and by_name["x0"] == 1 and by_name["x129"] == 2


def test_statistics_by_hand():
    # Eligible of the pair: both visits to s, which both rollouts visit. Eligible of CHAIN: s (a, b), which all four
    # visit, and n (a, b), visited by rollouts 0 and 2, which leads nowhere else.
    process = EmpiricalProcess.from_groups([group("s:a +", "s:b -"), CHAIN])
    statistics = coverage_statistics(process, (0, 1, None))
    assert eligible(process).sum() == statistics.eligible == 8 and statistics.visits == 11
    assert statistics.size.tolist() == [2] * 2 + [4] * 6  # full access is that of a visit's own group
    np.testing.assert_allclose(statistics.full_access, [6 / 8] * 3)
    np.testing.assert_allclose(statistics.expanded, [0, 0, 0])
    np.testing.assert_allclose(statistics.distribution, [[0, 0, 4 / 8, 0, 4 / 8]] * 3)
    assert statistics.paired[2, 2] == 4 and statistics.paired[4, 4] == 4 and statistics.paired.sum() == 8


def test_coverage_expands_with_depth():
    # m is seen by rollouts 0 and 1 only; n, one edge on, by 0 and 2; k, two edges on, by 2 and 3
    process = EmpiricalProcess.from_group(group("s:a m:a n:a +", "s:a m:b -", "s:b n:b k:a -", "s:c k:b +"))
    statistics = coverage_statistics(process, (0, 1, 2, None))
    assert dict(zip(process.anchors, coverages(process, (0, 1, 2)).T.tolist(), strict=True)) == {
        "s": [4, 4, 4],
        "m": [2, 3, 4],
        "n": [2, 3, 3],
        "k": [2, 2, 2],
    }
    assert coverages(process, (0, None))[:, [process.anchors.index(name) for name in "smnk"]].tolist() == [
        [4, 2, 2, 2],
        [4, 4, 3, 2],  # the closure is deeper than the deepest other depth
    ]
    # ten visits, all eligible: four at s and two each at m, n and k
    np.testing.assert_allclose(statistics.full_access, [0.4, 0.4, 0.6, 0.6])
    np.testing.assert_allclose(statistics.expanded, [0, 0.4, 0.4, 0.4])
    assert statistics.paired[2].tolist() == [0, 0, 2, 2, 2] and statistics.paired[4, 4] == 4


def test_a_group_without_a_choice_has_no_eligible_visit():
    statistics = coverage_statistics(EmpiricalProcess.from_group(group("s:a +", "s:a -")))
    assert statistics.eligible == 0 and np.isnan(statistics.full_access).all()
    assert statistics.paired.tolist() == [[0]] and statistics.distribution.shape == (5, 1)


def test_counts_alone_and_negative_depths_are_refused():
    counts = TransitionCounts.from_rollouts([Rollout([Step("s", "a")], True)])
    with pytest.raises(GroupError, match="needs rollouts"):
        coverage(counts.process())
    with pytest.raises(ValueError, match="integer >= 0"):
        coverage(EmpiricalProcess.from_group(CHAIN), -1)
