"""Graded outcomes and rewards per step: by hand, against the binary outcome, and where they are refused."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT, solved
from strategies import group

from anchors import INVALID, EmpiricalProcess, GroupError, Rollout, RolloutGroup, Step, TransitionCounts
from crbc_rl import credit

GRADED = [name for name in credit.METHODS if name not in ("graphgpo", "scores")]
STEPWISE = [name for name in GRADED if name != "g2po"]
SHOP = RolloutGroup(
    [
        Rollout([Step("s", "a", 1.0), Step("m", "c", 2.0)], success=True, score=1.0),
        Rollout([Step("s", "b", -1.0)], success=False, score=0.4),
        Rollout([Step("s", "b", 0.0)], success=False, truncated=True, final_anchor="m", score=0.8),
    ]
)


@pytest.mark.parametrize(
    ("method", "reward"), [("graphgpo", "score"), ("graphgpo", "step"), ("g2po", "step"), ("grpo", "rewards")]
)
def test_methods_refuse_what_they_have_no_definition_for(method, reward):
    with pytest.raises(credit.CreditError, match=f"reward must be .*, got '{reward}'"):
        credit.advantages(SHOP, method, reward=reward)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("method", GRADED)
def test_a_score_lies_between_zero_and_one(method, score):
    members = RolloutGroup([SHOP.rollouts[0], Rollout([Step("s", INVALID)], False, score=score)])
    with pytest.raises(credit.CreditError, match=r"rollout 1: a score lies in \[0, 1\]"):
        credit.advantages(members, method, reward="score")
    credit.advantages(members, method)  # not looked at where it is not used


@pytest.mark.parametrize("method", STEPWISE)
def test_a_reward_is_a_finite_number(method):
    members = RolloutGroup([SHOP.rollouts[0], Rollout([Step("s", "b", 0.0), Step("m", "c", float("inf"))], False)])
    with pytest.raises(credit.CreditError, match="rollout 1, step 1: a reward is a finite number, got inf"):
        credit.advantages(members, method, reward="step")


def test_counts_alone_have_no_rewards():
    process = group("s:a +", "s:b -")
    counts = EmpiricalProcess.from_group(process)
    bare = EmpiricalProcess(counts.counts, counts.pair_anchor, counts.pair_action)
    with pytest.raises(ValueError, match="rollouts"):
        credit.closure(bare, reward="score")


# ---- what an invalid reply costs ------------------------------------------------------------------

REFUSED = RolloutGroup(
    [Rollout([Step("s", INVALID), Step("s", "a")], success=True), Rollout([Step("s", "b")], success=False)]
)


def test_an_invalid_reply_without_a_cost_is_worth_more_than_a_bad_action():
    # beta = 1/2: V(s) = (V(s)/2 + 1/2 + 0) / 3 = 1/5, Q(s, invalid) = V(s)/2 = 1/10 > Q(s, b) = 0.
    V, Q = solved(REFUSED, beta=0.5)
    assert (V["s"], Q["s", INVALID], Q["s", "b"]) == pytest.approx((0.2, 0.1, 0.0), abs=1e-12)


def test_an_invalid_reply_costs_at_its_own_step():
    # V(s) = ((V(s) - 1/2)/2 + 1/2 + 0) / 3 = 1/10, Q(s, invalid) = (1/10 - 1/2)/2 = -1/5.
    V, Q = solved(REFUSED, beta=0.5, invalid_cost=0.5)
    assert (V["s"], Q["s", INVALID], Q["s", "a"], Q["s", "b"]) == pytest.approx((0.1, -0.2, 0.5, 0.0), abs=1e-12)
    # One backup: V_0(s) is the mean of the suffix returns (-1/2)/2 + 1/4, 1/2 and 0.
    _, Q = solved(REFUSED, beta=0.5, invalid_cost=0.5, depth=1)
    assert Q["s", INVALID] == pytest.approx((1 / 6 - 0.5) / 2, abs=1e-12)
    # Within two steps: V_1(s) = (-1/4 + 1/2 + 0) / 3 = 1/12, and a visit at the second step has one step left.
    _, Q = solved(REFUSED, beta=0.5, invalid_cost=0.5, horizon=2)
    assert Q["s", INVALID] == pytest.approx((2 * (1 / 12 - 0.5) / 2 + (0 - 0.5) / 2) / 3, abs=1e-12)


def test_costs_alone_are_worth_less_than_nothing():
    # V(s) = (V(s) - 1/2)/2 / 2, since s is left by b half of the time and b fails: V(s) = -1/6.
    costly = RolloutGroup([Rollout([Step("s", INVALID), Step("s", "b")], success=False)])
    V, Q = solved(costly, beta=0.5, invalid_cost=0.5)
    assert (V["s"], Q["s", INVALID], Q["s", "b"]) == pytest.approx((-1 / 6, -1 / 3, 0.0), abs=1e-12)


@pytest.mark.parametrize("reward", ["outcome", "score", "step"])
@pytest.mark.parametrize("truncation", ["failure", "successor"])
def test_a_group_without_invalid_replies_has_no_costs(reward, truncation):
    options = {"reward": reward, "truncation": truncation}
    free, costly = (credit.advantages(SHOP, "crbc", **options, invalid_cost=cost) for cost in (0.0, 0.3))
    assert np.allclose(np.concatenate(free), np.concatenate(costly), **TIGHT)


def test_costs_are_finite_and_need_rollouts():
    for cost in (-0.1, np.nan, np.inf):
        with pytest.raises(credit.CreditError, match="invalid_cost"):
            credit.advantages(REFUSED, "crbc", invalid_cost=cost)
    counted = EmpiricalProcess.from_counts(TransitionCounts.from_rollouts(REFUSED.rollouts))
    with pytest.raises(GroupError, match=r"invalid_cost=0\.5 needs"):
        credit.closure(counted, invalid_cost=0.5)


@pytest.mark.parametrize("reward", ["environment", "steps"])
def test_another_kind_of_reward_is_refused_where_rows_earn(reward):
    with pytest.raises(credit.CreditError, match=f"reward must be .* here, got '{reward}'"):
        credit.row_rewards(EmpiricalProcess.from_group(SHOP), reward=reward)
