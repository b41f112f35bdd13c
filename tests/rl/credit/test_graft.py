"""GRAFT against numbers worked out by hand, against the definition row by row, and against Q - V."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from naive import TIGHT, random_update
from strategies import group

from anchors import EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_rl import credit

KINDS = [
    {},
    {"beta": "auto"},
    {"beta": 1.0, "truncation": "failure"},
    {"truncation": "successor"},
    {"truncation": "successor", "reward": "score", "beta": 0.9},
    {"truncation": "successor", "reward": "step", "beta": 0.9},
    {"reward": "step", "beta": "auto"},
]


def graded(group_, rng):
    """The group with rewards, scores and truncated rollouts."""
    rollouts = []
    for played in group_.rollouts:
        steps = [Step(s.anchor, s.action, float(rng.normal())) for s in played.steps]
        cut = not played.success and rng.random() < 0.5
        rollouts.append(Rollout(steps, played.success, cut, played.final_anchor, float(rng.random())))
    return RolloutGroup(rollouts)


def updates(count):
    rng = np.random.default_rng(18)
    for _ in range(count):
        yield [graded(one, rng) for one in random_update(rng)]


def beta_of(group_, beta):
    if beta != "auto":
        return beta
    lengths = [len(played) for played in group_.rollouts if played.success]
    return 1.0 - 1.0 / max(np.mean(lengths), 2.0) if lengths else 0.98


def naive(group_, beta=0.98, lam=0.0, truncation="failure", reward="outcome"):
    """The definition, one rollout at a time, from the end."""
    process = EmpiricalProcess.from_group(group_)
    V = credit.closure(process, beta, truncation=truncation, reward=reward).V
    value = dict(zip(process.anchors, V, strict=True))
    beta, found = beta_of(group_, beta), []
    for played in group_.rollouts:
        on = truncation == "successor" and played.truncated and played.final_anchor in value
        after, advantage, own = value[played.final_anchor] if on else 0.0, 0.0, []
        for t in reversed(range(len(played))):
            end = t == len(played) - 1
            earned = {"step": played.steps[t].reward, "outcome": end * played.success, "score": end * played.score}
            here, gain = value[played.steps[t].anchor], 0.0 if reward == "score" and on else earned[reward]
            advantage = beta * (gain + after) - here + beta * lam * advantage
            after = here
            own.append(advantage)
        found.append(own[::-1])
    return found


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_it_is_the_definition_row_by_row(options, lam):
    for update in updates(effort(8, full=30)):
        for group_, got in zip(update, credit.advantages_batch(update, "graft", lam=lam, **options), strict=True):
            for one, other in zip(got, naive(group_, lam=lam, **options), strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_without_lambda_its_mean_over_the_visits_to_a_pair_is_q_minus_v(options):
    """So GRAFT and the raw step credit have one expected gradient: a pair's visits share their policy's gradient."""
    for update in updates(effort(8, full=30)):
        process = EmpiricalProcess.from_groups(update)
        raw = credit.step_credit(
            process,
            options.get("beta", 0.98),
            normalise=None,
            **{name: value for name, value in options.items() if name != "beta"},
        )
        mine = np.concatenate([one for got in credit.advantages_batch(update, "graft", **options) for one in got])
        mean = np.bincount(process.pair, weights=mine) / np.bincount(process.pair)
        np.testing.assert_allclose(mean, raw, rtol=0, atol=1e-11)
        # Hence the mean over an anchor's visits is 0: a graph average of such differences adds nothing downstream.
        anchor = process.rollouts.anchor
        np.testing.assert_allclose(np.bincount(anchor, weights=mine), 0.0, rtol=0, atol=1e-10)


def test_differences_by_hand():
    # beta 1/2: V(m) = 1/2 (1 + 0) / 2 = 1/4, V(s) = 1/2 (2/4) / 2 = 1/8.
    hand = group("s:a m:b +", "s:a m:b -")
    got = credit.advantages(hand, "graft", beta=0.5)
    np.testing.assert_allclose(np.concatenate(got), [0, 1 / 4, 0, -1 / 4], **TIGHT)
    got = credit.advantages(hand, "graft", beta=0.5, lam=0.5)
    np.testing.assert_allclose(np.concatenate(got), [1 / 16, 1 / 4, -1 / 16, -1 / 4], **TIGHT)
    # lam = 1: the rollout's own discounted return, 1/4 and 0 from s, minus V.
    got = credit.advantages(hand, "graft", beta=0.5, lam=1.0)
    np.testing.assert_allclose(np.concatenate(got), [1 / 8, 1 / 4, -1 / 8, -1 / 4], **TIGHT)
    # Dr. GRPO's relatives come on top where they are asked for: GRPO of 10 and 0 is +-1 / sqrt 2.
    got = credit.advantages(hand, "graft", beta=0.5, w_group=2.0, w_step=3.0)
    np.testing.assert_allclose(np.concatenate(got), [2**0.5, 2**0.5 + 0.75, -(2**0.5), -(2**0.5) - 0.75], atol=1e-6)


def test_a_truncated_step_that_leads_on_by_hand():
    # s -a-> m -b-> success; the other is cut at m. beta 1/2: V(m) = 1/2, V(s) = 1/2 (1/2 + 1/2) / 2 = 1/4.
    steps = [Step("s", "a", 0.25), Step("m", "b", 0.5)]
    cut = Rollout(steps[:1], False, True, "m", score=0.5)
    hand = RolloutGroup([Rollout(steps, True), cut])
    got = credit.advantages(hand, "graft", beta=0.5, truncation="successor")
    np.testing.assert_allclose(np.concatenate(got), [0, 0, 0], **TIGHT)
    got = credit.advantages(hand, "graft", beta=0.5)  # the cut counts as a failure: V(s) = 1/8
    np.testing.assert_allclose(np.concatenate(got), [1 / 8, 0, -1 / 8], **TIGHT)
    got = credit.advantages(hand, "graft", beta=0.5, reward="score")  # V(s) = 1/2 (1/2 + 1/2) / 2
    np.testing.assert_allclose(np.concatenate(got), [0, 0, 0], **TIGHT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 1.5}, r"lam must lie in \[0, 1\], got 1.5"),
        ({"lam": float("nan")}, "lam must lie in"),
        ({"beta": 0.0}, "beta must lie in"),
        ({"w_step": -1.0}, "w_group and w_step must be finite"),
        ({"reward": "return"}, "reward must be"),
        ({"truncation": "none"}, "truncation must be"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "graft", **options)
