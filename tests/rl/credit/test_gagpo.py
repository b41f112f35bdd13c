"""GAGPO against numbers worked out by hand and against the definition, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive import TIGHT, agrees, by_key, listed, places, step_at
from strategies import group

from anchors import Rollout, RolloutGroup, Step
from crbc_rl import credit

ONE = {"mode": "mean_norm", "success_reward": 1.0}


def naive(group_, gamma=0.95, lam=0.95, mode="mean_std_norm", reward="outcome"):
    earned, returns, advantage, visits = {}, {}, {}, {}
    for i, t in places(group_):
        played, step = group_.rollouts[i], step_at(group_, (i, t))
        end = t == len(played) - 1
        kinds = {"outcome": 10.0 * end * played.success, "score": 10.0 * end * played.score, "step": step.reward}
        earned[i, t] = kinds[reward] - (0.0 if step.valid else 0.1)
    for i, t in reversed(places(group_)):
        returns[i, t] = earned[i, t] + gamma * returns.get((i, t + 1), 0.0)
        visits.setdefault(step_at(group_, (i, t)).anchor, []).append(returns[i, t])
    V = {anchor: math.fsum(some) / len(some) for anchor, some in visits.items()}
    for i, t in reversed(places(group_)):
        after = V[step_at(group_, (i, t + 1)).anchor] if (i, t + 1) in earned else 0.0
        one, other = earned[i, t] + gamma * after, V[step_at(group_, (i, t)).anchor]
        delta = one - other if abs(one - other) > 1e-12 * max(abs(one), abs(other)) else 0.0
        advantage[i, t] = delta + gamma * lam * advantage.get((i, t + 1), 0.0)
    normal = by_key({row: advantage[row] for row in places(group_)}, lambda _: None, mode)
    return listed(group_, lambda row: normal[row])


@pytest.mark.parametrize("options", [{}, {"lam": 0.0}, {"lam": 1.0, "gamma": 1.0}, {"gamma": 0.5, "reward": "score"}])
def test_it_is_the_definition_row_by_row(options):
    agrees(naive, "gagpo", mode="mean_norm", **options)


def test_it_is_the_standardised_definition_row_by_row():
    # Mathematically equal values may differ by an ulp, which 1e-6 turns into 1e-9 in flat company.
    agrees(naive, "gagpo", mode="mean_std_norm", gamma=0.5, lam=0.5)


def test_differences_by_hand():
    # gamma 1/2: returns 1/2 and 0 from s, 1 at m. V(s) = 1/4, V(m) = 1. delta: 1/4 and 0; -1/4. Their mean is 0.
    hand = group("s:a m:b +", "s:b -")
    got = credit.advantages(hand, "gagpo", gamma=0.5, lam=0.5, **ONE)
    np.testing.assert_allclose(np.concatenate(got), [1 / 4, 0, -1 / 4], **TIGHT)
    got = credit.advantages(hand, "gagpo", gamma=0.5, lam=0.5, success_reward=1.0)
    np.testing.assert_allclose(np.concatenate(got), [1 / (1 + 4e-6), 0, -1 / (1 + 4e-6)], **TIGHT)
    # m is visited twice: V(m) = 1/2, V(s) = (1/2 + 0) / 2. delta: 0, 1/2; 0, -1/2. GAE: 1/8, 1/2; -1/8, -1/2.
    got = credit.advantages(group("s:a m:b +", "s:a m:b -"), "gagpo", gamma=0.5, lam=0.5, **ONE)
    np.testing.assert_allclose(np.concatenate(got), [1 / 8, 1 / 2, -1 / 8, -1 / 2], **TIGHT)


def test_step_rewards_by_hand():
    # gamma 1: returns 3, 2 and 1. V(s) = 2, V(m) = 2. lam = 1: return minus V; the mean of 1, 0, -1 is 0.
    hand = RolloutGroup(
        [Rollout([Step("s", "a", 1.0), Step("m", "b", 2.0)], False), Rollout([Step("s", "b", 1)], True)]
    )
    got = credit.advantages(hand, "gagpo", gamma=1.0, lam=1.0, mode="mean_norm", reward="step")
    np.testing.assert_allclose(np.concatenate(got), [1, 0, -1], **TIGHT)


def test_a_malformed_reply_costs_at_its_step_and_before():
    # V(s) = -0.05, V(m) = (-0.1 + 0) / 2. lam = 1, gamma = 1: return minus V.
    got = credit.advantages(group("s:a m:<invalid> -", "s:a m:a -"), "gagpo", gamma=1.0, lam=1.0, mode="mean_norm")
    np.testing.assert_allclose(np.concatenate(got), [-0.05, -0.05, 0.05, 0.05], **TIGHT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 2.0}, r"gamma must lie in \(0, 1\], got 2.0"),
        ({"lam": -0.1}, r"lam must lie in \[0, 1\], got -0.1"),
        ({"mode": "std"}, "mode must be one of"),
        ({"reward": "return"}, "reward must be"),
        ({"success_reward": float("inf")}, "success_reward must be a finite number"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "gagpo", **options)
