"""Figures of credit on groups small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from strategies import group, random_group

from anchors import EmpiricalProcess
from crbc_rl import credit
from crbc_rl.credit.estimator import Terms
from crbc_rl.credit.metrics import certified_shares, credit_metrics

# s and m are open (two actions each), o, u and w are not. From o, 0 goes s m, 1 goes s m, 2 goes s u, 3 goes w.
FOUR = group("o:z s:a m:c +", "o:z s:a m:d -", "o:z s:b u:e -", "o:z w:f -")


def figures(*groups: object, **options: object) -> dict[str, float]:
    process = EmpiricalProcess.from_groups(list(groups))
    return credit_metrics(process, credit.METHODS["crbc"].terms(process, **options), "crbc", options)


def test_anchors_of_a_group_by_hand() -> None:
    found = figures(FOUR)
    assert found["gate_open"] == 5 / 11  # s three times, m twice
    assert found["anchors_per_group"] == 5
    assert found["revisit_share"] == 9 / 11  # u and w are each visited by one rollout


def test_coverage_by_hand() -> None:
    """At depth 0, s is reached by 3 of 4 rollouts and m by 2; nothing joins them from behind."""
    found = figures(FOUR)
    for depth in ("0", "1", "3", "full"):
        assert found[f"coverage/{depth}"] == pytest.approx((3 * 0.75 + 2 * 0.5) / 5)
        assert found[f"full_access/{depth}"] == 0.0


def test_coverage_grows_with_depth_where_rollouts_meet_later() -> None:
    """s is open and visited by rollouts 0 and 1. Rollout 2 is reached at m, one edge on; rollout 3 at n, two edges."""
    met = group("o:z s:a m:x n:z +", "o:z s:b -", "o:z r:c m:x n:z -", "o:z q:d n:z -")
    found = figures(met)
    assert found["gate_open"] == 2 / 13
    assert [found[f"coverage/{depth}"] for depth in ("0", "1", "3", "full")] == [0.5, 0.75, 1.0, 1.0]
    assert [found[f"full_access/{depth}"] for depth in ("0", "1", "3", "full")] == [0.0, 0.0, 1.0, 1.0]


def test_groups_of_different_size_count_by_their_own() -> None:
    two = group("s:a +", "s:b -")
    found = figures(FOUR, two)
    assert found["coverage/0"] == pytest.approx((3 * 0.75 + 2 * 0.5 + 2 * 1.0) / 7)
    assert found["full_access/0"] == pytest.approx(2 / 7)
    assert found["anchors_per_group"] == 3.0


def test_a_group_without_a_choice_has_no_coverage() -> None:
    found = figures(group("s:a +", "s:a -"))
    assert found["gate_open"] == 0.0
    assert found["revisit_share"] == 1.0
    assert not [name for name in found if name.startswith(("coverage", "full_access", "certified"))]


def test_terms_and_turned_steps_by_hand() -> None:
    process = EmpiricalProcess.from_group(group("s:a m:c +", "s:b -"))
    found = Terms(group=np.array([1.0, 1.0, -2.0]), step=np.array([-3.0, -1.0, 0.5]))
    told = credit_metrics(process, found, "gigpo")
    assert told["group_term"] == pytest.approx(4 / 3)
    assert told["step_term"] == pytest.approx(4.5 / 3)
    assert told["turned"] == pytest.approx(1 / 3)  # the first; the second is now 0, the third still negative
    assert not [name for name in told if name.startswith("certified")]


def test_a_method_with_one_term_has_figures_of_anchors_alone() -> None:
    process = EmpiricalProcess.from_group(FOUR)
    for found in (credit.METHODS["grpo"].terms(process), credit.METHODS["hgpo"].terms(process), None):
        told = credit_metrics(process, found)
        assert {"gate_open", "coverage/full", "anchors_per_group", "revisit_share"} <= set(told)
        assert not set(told) & {"step_term", "group_term", "turned", "certified/1"}


# ---- certified depths -----------------------------------------------------------------------------


def test_an_exact_start_is_certified_at_every_depth() -> None:
    """One step each: V_0 is the closure, so that every residual is 0 and every bound too."""
    assert certified_shares(EmpiricalProcess.from_group(group("s:a +", "s:b -"))) == {0: 1.0, 1: 1.0, 3: 1.0}


def test_each_group_has_its_own_bound() -> None:
    exact, loose = group("s:a +", "s:b -"), group("s:a m:c +", "s:b m:d -", "s:a m:c -", "s:b m:d +")
    alone, other = (certified_shares(EmpiricalProcess.from_group(one)) for one in (exact, loose))
    both = certified_shares(EmpiricalProcess.from_groups([exact, loose]))
    assert alone[1] == 1.0 > other.get(1, 0.0)
    anchors = {
        name: int((credit.closure(EmpiricalProcess.from_group(one)).sigma > 1e-12).sum())
        for name, one in (("exact", exact), ("loose", loose))
    }
    assert both[1] == pytest.approx(
        (anchors["exact"] * alone[1] + anchors["loose"] * other.get(1, 0.0)) / sum(anchors.values())
    )


@pytest.mark.parametrize("beta", [0.5, 0.9, 0.98])
def test_where_it_is_certified_the_cut_credit_points_where_the_full_one_does(beta: float) -> None:
    """The promise itself: at each certified anchor <A_K, A> under mu is not negative. And from depth 1 on the shares
    are those of `diagnose`."""
    rng = np.random.default_rng(7)
    certified = 0
    for _ in range(effort(30, full=80)):
        process = EmpiricalProcess.from_group(random_group(rng))
        depths = (0, 1, 3, 400)
        shares = certified_shares(process, beta, depths)
        full = credit.closure(process, beta)
        open_ = full.sigma > 1e-12
        if not open_.any():
            assert shares == {}
            continue
        for row in credit.diagnose(process, beta, depths[1:]).depths:
            assert shares[row.depth] == row.certified / open_.sum()
        for depth, share in shares.items():
            best = np.argsort(-full.sigma)[: round(share * open_.sum())]  # one bound: the largest sigmas are certified
            cut = credit.closure(process, beta, depth).A
            inner = np.bincount(process.pair_anchor, process.mu * cut * full.A, process.num_anchors)
            assert (inner[best] >= -1e-12).all()
            assert np.abs(full.A - cut).max() <= full.sigma[best].min(initial=np.inf) + 1e-12
            certified += len(best)
    assert certified


def test_without_a_discount_there_is_no_bound() -> None:
    assert certified_shares(EmpiricalProcess.from_group(FOUR), 1.0) == {}
    assert set(certified_shares(EmpiricalProcess.from_group(FOUR), "auto")) == {0, 1, 3}
