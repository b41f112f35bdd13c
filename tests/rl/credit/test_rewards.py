"""Graded outcomes and rewards per step: by hand, against the binary outcome, and where they are refused."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import group, random_group

from anchors import INVALID, EmpiricalProcess, GroupError, Rollout, RolloutGroup, Step, TransitionCounts
from crbc_rl import credit

TIGHT = {"rtol": 0, "atol": 1e-12}
GRADED = [name for name in credit.METHODS if name not in ("graphgpo", "scores")]
STEPWISE = [name for name in GRADED if name != "g2po"]
SHOP = RolloutGroup(
    [
        Rollout([Step("s", "a", 1.0), Step("m", "c", 2.0)], success=True, score=1.0),
        Rollout([Step("s", "b", -1.0)], success=False, score=0.4),
        Rollout([Step("s", "b", 0.0)], success=False, truncated=True, final_anchor="m", score=0.8),
    ]
)


def solved(group, **options):
    process = EmpiricalProcess.from_group(group)
    found = credit.closure(process, **options)
    pairs = [(process.anchors[s], a) for s, a in process.pairs]
    return dict(zip(process.anchors, found.V.tolist(), strict=True)), dict(zip(pairs, found.Q.tolist(), strict=True))


def test_a_score_is_earned_at_the_end():
    # beta = 1/2: V(m) = 1/2, Q(s, a) = 1/4, Q(s, b) = (0.4 + 0.8) / 2 / 2 = 0.3.
    V, Q = solved(SHOP, beta=0.5, reward="score")
    assert (V["m"], Q["s", "a"], Q["s", "b"]) == pytest.approx((0.5, 0.25, 0.3), abs=1e-12)
    assert V["s"] == pytest.approx((0.25 + 0.3 + 0.3) / 3, abs=1e-12)


def test_a_truncated_step_that_leads_on_has_no_score():
    # Q(s, b) = (0.4 + V(m)) / 2 / 2 = 0.225: what was scored at the cut gives way to what follows at m.
    _, Q = solved(SHOP, beta=0.5, reward="score", truncation="successor")
    assert Q["s", "b"] == pytest.approx(0.225, abs=1e-12)


def test_every_step_earns_its_own_reward():
    # V(m) = 2/2 = 1, Q(s, a) = (1 + V(m)) / 2 = 1, Q(s, b) = (-1 + 0) / 2 / 2 = -1/4.
    V, Q = solved(SHOP, beta=0.5, reward="step")
    assert (V["m"], Q["s", "a"], Q["s", "b"]) == pytest.approx((1.0, 1.0, -0.25), abs=1e-12)
    # With the successor kept, the second b goes on to m: (-1 + 0 + V(m)) / 2 / 2 = 0.
    _, Q = solved(SHOP, beta=0.5, reward="step", truncation="successor")
    assert Q["s", "b"] == pytest.approx(0.0, abs=1e-12)


def test_rewards_along_a_path_without_branches():
    # beta = 1/2: V(u) = 4/2, V(m) = (2 + 2)/2, V(s) = (1 + 2)/2.
    path = [Step("s", "a", 1.0), Step("m", "b", 2.0), Step("u", "c", 4.0)]
    V, _ = solved(RolloutGroup([Rollout(path, True)] * 2), beta=0.5, reward="step")
    assert (V["u"], V["m"], V["s"]) == pytest.approx((2.0, 2.0, 1.5), abs=1e-12)


def test_suffixes_of_step_rewards():
    # Depth 0: Q(s, a) = (1 + 2/2) / 2 = 1; Q(s, b) = -1/4.
    _, Q = solved(SHOP, beta=0.5, depth=0, reward="step")
    assert (Q["s", "a"], Q["m", "c"], Q["s", "b"]) == pytest.approx((1.0, 1.0, -0.25), abs=1e-12)


def test_step_rewards_within_a_horizon():
    # beta = 1, H = 2: Q_1(m, c) = 2 and Q_2(s, a) = 1 + 2 = 3; Q_2(s, b) = -1/2; all visits of s have two steps left.
    V, Q = solved(SHOP, beta=1.0, horizon=2, reward="step")
    assert (Q["s", "a"], Q["s", "b"], V["m"]) == pytest.approx((3.0, -0.5, 2.0), abs=1e-12)


def rewarded(played: Rollout) -> Rollout:
    """The same outcome told as a reward on the last step."""
    *steps, last = played.steps
    steps = [Step(s.anchor, s.action, 0.0) for s in steps]
    return Rollout([*steps, Step(last.anchor, last.action, float(played.success))], played.success)


@pytest.mark.parametrize("method", GRADED)
def test_a_binary_score_is_the_outcome(method):
    rng = np.random.default_rng(1)
    for _ in range(20):
        update = [random_group(rng) for _ in range(3)]
        for one, other in zip(
            credit.advantages_batch(update, method, reward="score"),
            credit.advantages_batch(update, method),
            strict=True,
        ):
            np.testing.assert_allclose(np.concatenate(one), np.concatenate(other), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", STEPWISE)
def test_a_reward_at_the_end_is_the_outcome(method):
    rng = np.random.default_rng(2)
    for _ in range(20):
        update = [RolloutGroup(map(rewarded, random_group(rng).rollouts)) for _ in range(3)]
        plain = credit.advantages_batch(update, method, success_reward=1.0)
        for one, other in zip(credit.advantages_batch(update, method, reward="step"), plain, strict=True):
            np.testing.assert_allclose(np.concatenate(one), np.concatenate(other), rtol=1e-9, atol=1e-9)


def test_a_trajectory_sums_its_rewards():
    # Sums 3, -1 and 0: mean 2/3. One malformed reply would take 0.1 from its rollout.
    got = credit.advantages(SHOP, "drgrpo", reward="step")
    np.testing.assert_allclose(np.concatenate(got), [7 / 3, 7 / 3, -5 / 3, -2 / 3], **TIGHT)
    got = credit.advantages(SHOP, "drgrpo", reward="score")
    np.testing.assert_allclose(
        np.concatenate(got), [10 - 22 / 3, 10 - 22 / 3, 4 - 22 / 3, 8 - 22 / 3], rtol=0, atol=1e-12
    )


def test_gigpo_discounts_step_rewards_from_the_step_itself():
    # gamma = 1/2: returns 1 + 2/2 = 2 and 2; -1; 0. At s: 2, -1, 0, mean 1/3.
    got = credit.advantages(SHOP, "gigpo", gamma=0.5, mode="mean_norm", w_group=0, reward="step")
    np.testing.assert_allclose(np.concatenate(got), [5 / 3, 0.0, -4 / 3, -1 / 3], **TIGHT)


def test_rtmc_shrinks_towards_the_mean_of_the_returns():
    # gamma = 1: returns at s 3, -1, 0, so V = m = V' = 2/3. A(s, a) = 3 - 2/3 and A(s, b) = -1/2 - 2/3.
    got = credit.advantages(SHOP, "rtmc", gamma=1.0, reward="step")
    np.testing.assert_allclose(np.concatenate(got)[[0, 2]], [7 / 3, -7 / 6], **TIGHT)


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
