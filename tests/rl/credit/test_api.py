"""credit.advantages: the contract every estimator keeps, and CRBC's assembly (eq. 14)."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import group, groups

from anchors import INVALID, EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_rl import credit

METHODS = sorted(credit.METHODS)
MIXED = group("s:a m:c s:b -", "s:b u:d m:e +", "s:a m:<invalid> -", "s:b m:e +")


@given(groups(), st.sampled_from(METHODS))
def test_every_method_gives_one_float64_array_per_rollout_and_one_value_per_step(drawn, method):
    values = credit.advantages(drawn, method)
    assert [v.shape for v in values] == [(len(played),) for played in drawn.rollouts]
    for v in values:
        assert v.dtype == np.float64
        assert np.isfinite(v).all()


@given(st.lists(groups(max_members=3, max_steps=5), min_size=1, max_size=4), st.sampled_from(METHODS))
def test_a_batch_of_groups_equals_one_by_one(drawn, method):
    together = credit.advantages_batch(drawn, method)
    assert [len(values) for values in together] == [len(group) for group in drawn]
    for group_, values in zip(drawn, together, strict=True):
        for alone, batched in zip(credit.advantages(group_, method), values, strict=True):
            np.testing.assert_allclose(batched, alone, rtol=0, atol=1e-12)


BY_MODE = ("gigpo", "hgpo", "g2po", "gagpo", "rtmc", "graphgpo")
BY_STEP = ("crbc", "grpo", "drgrpo", "rloo", "gigpo", "graphgpo", "g2po", "graft")
WEIGHTED = [*((name, {}) for name in METHODS), *((name, {"weighting": "step"}) for name in BY_STEP)]


@pytest.mark.parametrize(("method", "options"), WEIGHTED, ids=str)
@given(drawn=groups(), random=st.randoms(use_true_random=False))
@settings(max_examples=effort(8, full=50))
def test_shuffling_the_members_shuffles_their_credit(method, options, drawn, random):
    order = random.sample(range(len(drawn)), len(drawn))
    straight = credit.advantages(drawn, method, **options)
    shuffled = credit.advantages(RolloutGroup(drawn.rollouts[i] for i in order), method, **options)
    for i, values in zip(order, shuffled, strict=True):
        np.testing.assert_allclose(values, straight[i], rtol=0, atol=1e-8)


@given(groups(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0, 5.0]), st.sampled_from([None, 0, 2]))
def test_crbc_is_the_weighted_sum_of_group_advantage_and_step_credit(drawn, w_group, w_step, depth):
    options = {"beta": 0.9, "depth": depth, "sigma_min": 0.2}
    process = EmpiricalProcess.from_group(drawn)
    by_pair = credit.step_credit(process, **options)
    look_up = {(process.anchors[s], a): c for (s, a), c in zip(process.pairs, by_pair, strict=True)}
    for name in ("grpo", "drgrpo", "rloo"):
        final = credit.advantages(drawn, "crbc", w_group=w_group, w_step=w_step, group=name, **options)
        for played, got, broadcast in zip(drawn.rollouts, final, credit.advantages(drawn, name), strict=True):
            step = np.array([look_up[s.anchor, s.action] for s in played.steps])
            np.testing.assert_allclose(got, w_group * broadcast + w_step * step, rtol=0, atol=1e-12)


FLAT = {
    "all fail": group("s:a m:b -", "s:b -", "s:a s:a m:a -"),
    "one path": group(*["s:a m:b u:c +"] * 7),
    "one step": group(*["s:a +"] * 7),
    "one success": group("s:a m:b +"),
    "one failure": group("s:<invalid> -"),
    "equally malformed": group(*["s:<invalid> m:<invalid> -"] * 7),
    "short and malformed": group(*["s:<invalid> -"] * 3),
    "two ways": group(*["s:a +", "s:b +"] * 3),
}
FLAT_OPTIONS = [
    *((name, {"mode": mode}) for name in BY_MODE if name != "rtmc" for mode in ("mean_std_norm", "mean_norm")),
    *((name, {"weighting": by}) for name in ("grpo", "drgrpo", "rloo") for by in ("rollout", "step")),
    ("graft", {"lam": 0.0}),
    ("graft", {"lam": 0.9}),
    ("rtmc", {}),
]
UNEVEN = {
    "g2po": ("one path", "one success"),
    "rtmc": ("one path", "one success", "one failure", "equally malformed", "short and malformed"),
}
"""Flat groups with something to tell: G2PO compares the steps of a rollout, RTMC each step with the group's outcome."""


@pytest.mark.parametrize("flat", FLAT)
@pytest.mark.parametrize(("method", "options"), FLAT_OPTIONS, ids=str)
def test_a_flat_group_gets_exact_zeros(method, options, flat):
    if flat not in UNEVEN.get(method, ()):
        assert not np.concatenate(credit.advantages(FLAT[flat], method, success_reward=0.1, **options)).any()


def test_crbc_defaults_are_those_of_the_paper():
    spelled = {"beta": 0.98, "depth": None, "sigma_min": 0.1, "w_group": 1.0, "w_step": 5.0, "group": "grpo"}
    for default, explicit in zip(credit.advantages(MIXED), credit.advantages(MIXED, "crbc", **spelled), strict=True):
        np.testing.assert_array_equal(default, explicit)


def test_the_step_credit_alone_by_hand():
    # Q(s, a) = beta/2 and Q(s, b) = 0 at beta 0.8, both taken twice: sigma 0.2, credit +1 and -1.
    hand = group("s:a +", "s:a -", "s:b -", "s:b -")
    got = credit.advantages(hand, "crbc", beta=0.8, w_group=0, w_step=1)
    np.testing.assert_allclose(np.concatenate(got), [1, 1, -1, -1], rtol=0, atol=1e-12)
    # With the group advantage: returns 10, 0, 0, 0, Dr. GRPO 7.5 and -2.5.
    got = credit.advantages(hand, "crbc", beta=0.8, w_group=2, w_step=1, group="drgrpo")
    np.testing.assert_allclose(np.concatenate(got), [16, -4, -6, -6], rtol=0, atol=1e-12)


@given(groups())
def test_the_same_action_at_the_same_anchor_shares_one_step_credit(drawn):
    shared = {}
    for played, values in zip(drawn.rollouts, credit.advantages(drawn, w_group=0, w_step=1), strict=True):
        for step, value in zip(played.steps, values, strict=True):
            assert shared.setdefault((step.anchor, step.action), value) == value


def test_a_failing_rollout_is_credited_for_a_step_that_others_finished():
    credit_of = credit.advantages(group("s:a m:c -", "s:b u:d -", "s:a m:e +"), w_group=0, w_step=1)
    assert credit_of[0][0] > 0 > credit_of[0][1]


@pytest.mark.parametrize("method", credit.METHODS)
def test_a_malformed_reply_is_charged_at_its_own_step_by_every_estimator(method):
    plain, charged = (credit.advantages(MIXED, method, **options) for options in ({}, {"invalid_step_penalty": 0.3}))
    for rollout, one, other in zip(MIXED.rollouts, plain, charged, strict=True):
        valid = np.array([step.valid for step in rollout.steps])
        np.testing.assert_allclose(other, one - 0.3 * ~valid, rtol=0, atol=1e-12)
    assert not all(step.valid for rollout in MIXED.rollouts for step in rollout.steps)
    with pytest.raises(credit.CreditError, match="invalid_step_penalty"):
        credit.advantages(MIXED, method, invalid_step_penalty=np.nan)


def test_the_invalid_penalty_enters_the_group_advantage_alone():
    options = {"w_group": 0.0, "w_step": 1.0}
    for penalty in (0.0, 3.0):
        got = credit.advantages(MIXED, invalid_penalty=penalty, **options)
        for one, other in zip(got, credit.advantages(MIXED, **options), strict=True):
            np.testing.assert_array_equal(one, other)
    assert credit.advantages(MIXED, invalid_penalty=3.0)[2][0] < credit.advantages(MIXED)[2][0]


@pytest.mark.parametrize(
    ("typo", "meant"), [("crcb", "crbc"), ("GRPO", "grpo"), ("rlo", "rloo"), ("dr-grpo", "drgrpo")]
)
def test_an_unknown_method_names_its_nearest_neighbour(typo, meant):
    with pytest.raises(credit.CreditError, match=f"unknown credit method '{typo}'; did you mean '{meant}'"):
        credit.advantages(MIXED, typo)


@pytest.mark.parametrize(
    ("method", "typo", "meant"),
    [("crbc", "betta", "beta"), ("crbc", "w_steps", "w_step"), ("grpo", "succes_reward", "success_reward")],
)
def test_an_unknown_option_names_its_nearest_neighbour(method, typo, meant):
    with pytest.raises(credit.CreditError, match=f"{method} has no option '{typo}'; did you mean '{meant}'"):
        credit.advantages(MIXED, method, **{typo: 1})


def test_options_are_checked_before_any_rollout_is_touched():
    credit.check_options("crbc", {"beta": 0.9, "depth": 3})
    with pytest.raises(credit.CreditError, match="grpo has no option 'beta'"):
        credit.advantages_batch([], "grpo", beta=0.9)


WEIGHTS = "w_group and w_step must be finite and >= 0, got"
HISTORY = "history must be an integer >= 0, got"


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        *((name, {"w_step": -1.0}, WEIGHTS) for name in ("crbc", "gigpo", "g2po", "graft")),
        *((name, {"w_group": float("nan")}, WEIGHTS) for name in ("crbc", "graphgpo")),
        *((name, {"weighting": "token"}, "weighting must be one of rollout, step; got 'token'") for name in BY_STEP),
        *((name, {"mode": "std"}, "mode must be one of mean_std_norm, mean_norm; got 'std'") for name in BY_MODE),
        *((name, {"gamma": 0.0}, r"gamma must lie in \(0, 1\], got 0.0") for name in BY_MODE if name != "graphgpo"),
        ("gigpo", {"gamma": 1.1}, "gamma must lie in"),
        ("graphgpo", {"omega": 0.0}, r"omega must lie in \(0, 1\], got 0.0"),
        ("graft", {"beta": 0.0}, "beta must lie in"),
        *((name, {"lam": 1.5}, r"lam must lie in \[0, 1\], got 1.5") for name in ("graft", "gagpo")),
        ("graft", {"lam": float("nan")}, "lam must lie in"),
        ("gagpo", {"lam": -0.1}, "lam must lie in"),
        *((name, {"reward": "return"}, "reward must be") for name in ("graft", "gagpo")),
        ("graft", {"truncation": "none"}, "truncation must be"),
        ("rtmc", {"prior": -1.0}, "prior must be finite and >= 0, got -1.0"),
        ("rtmc", {"pooling": "action"}, "pooling must be state or pair"),
        *(("hgpo", {"history": history}, f"{HISTORY} {history}") for history in (-1, 1.5, True)),
        ("hgpo", {"alpha": -1.0}, "alpha must be finite and >= 0"),
        ("hgpo", {"first_weight": 0.0}, "first_weight must be positive"),
    ],
)
def test_options_out_of_range_are_refused(method, options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(MIXED, method, **options)


# ---- estimators of one's own -----------------------------------------------------------------------


def leveled(process, *, level=2.0):
    rollouts, _ = process.steps("leveled")
    return level * rollouts.step


@given(groups())
def test_a_function_is_an_estimator_like_any_other(drawn):
    advantages = credit.advantages(drawn, leveled, level=3.0)
    assert [per_step.tolist() for per_step in advantages] == [
        [3.0 * t for t in range(len(rollout))] for rollout in drawn.rollouts
    ]
    assert credit.advantages_batch([drawn, drawn], leveled)[1][0].dtype == np.float64


def test_a_function_of_one_s_own_is_joined_to_a_group_term_where_that_is_asked_for():
    alone, group_term = (np.concatenate(credit.advantages(MIXED, method)) for method in (leveled, "rloo"))
    joined = credit.advantages(MIXED, leveled, w_group=0.5, w_step=3.0, group="rloo")
    np.testing.assert_array_equal(np.concatenate(joined), 3.0 * alone + 0.5 * group_term)
    with pytest.raises(credit.CreditError, match="leveled has no option 'reward'"):  # it would not know of it
        credit.advantages(MIXED, leveled, reward="step")


def test_a_weight_that_a_function_applies_itself_is_not_applied_again():
    def judged(process, w_step=1.0):
        return credit.scores(process, scores=leveled(process), w_step=w_step)

    for weight in (0.0, 0.5, 2.0):
        scores = leveled(EmpiricalProcess.from_group(MIXED))
        expected = np.concatenate(credit.advantages(MIXED, "scores", scores=scores, w_step=weight))
        np.testing.assert_allclose(np.concatenate(credit.advantages(MIXED, judged, w_step=weight)), expected)


def test_a_function_that_asks_what_steps_earn_is_told():
    def paid(process, *, reward="outcome", success_reward=1.0):
        return np.full(len(process.steps()[1]), success_reward if reward == "outcome" else -1.0)

    assert credit.advantages(MIXED, paid)[0].tolist() == [1.0] * 3
    assert credit.advantages(MIXED, paid, success_reward=4.0)[0].tolist() == [4.0] * 3
    assert credit.advantages(MIXED, paid, reward="step")[0].tolist() == [-1.0] * 3


@credit.estimator(w_group=2.0, w_step=0.5, rewards=("outcome", "score"))
def late(process, earned, *, power=1):
    """The step's number to the power, times what the rollout earned, less the penalty of its reply."""
    return earned.rollouts.step**power * earned.by_rollout()[earned.rollouts.rollout] - earned.penalties


def test_an_estimator_of_one_s_own_declares_its_options_and_its_weights_once():
    values = np.concatenate(credit.advantages(MIXED, late, power=2, success_reward=3.0, invalid_penalty=0.2))
    of_group = np.concatenate(credit.advantages(MIXED, "grpo", success_reward=3.0, invalid_penalty=0.2))
    steps = [0, 0, 0, 0, 3, 12, 0, -0.2, 0, 3]  # in MIXED the second and the fourth rollout succeed
    np.testing.assert_allclose(values, 0.5 * np.array(steps) + 2.0 * of_group, rtol=1e-14)
    assert late.options["power"] == 1 and late.options["w_group"] == 2.0
    with pytest.raises(credit.CreditError, match="late has no option 'powr'; did you mean 'power'"):
        credit.advantages(MIXED, late, powr=2)
    with pytest.raises(credit.CreditError, match="reward must be 'outcome' or 'score' here, got 'step'"):
        credit.advantages(MIXED, late, reward="step")


def test_the_options_that_a_step_term_declares_keep_their_defaults():
    @credit.estimator(w_group=1.0)
    def charged(process, earned, *, invalid_step_penalty=0.3):
        return np.where(earned.rollouts.valid, 0.0, -invalid_step_penalty)

    group = RolloutGroup([Rollout([Step("s", "a"), Step("s", INVALID)], True), Rollout([Step("s", "b")], True)])
    assert charged.options["invalid_step_penalty"] == 0.3
    for options, expected in (({}, -0.3), ({"invalid_step_penalty": 0.1}, -0.1), ({"w_step": 2.0}, -0.6)):
        values = credit.advantages(group, charged, invalid_penalty=0.0, **options)
        assert np.concatenate(values).tolist() == [0.0, pytest.approx(expected), 0.0]


def short(process):
    return [1.0]


def test_what_a_function_gives_is_checked():
    one = RolloutGroup([Rollout([Step("a", "x"), Step("b", "y")], success=True)])
    with pytest.raises(credit.CreditError, match="leveled has no option 'levl'; did you mean 'level'"):
        credit.advantages(one, leveled, levl=1)
    with pytest.raises(credit.CreditError, match=r"short gave an array of shape \(1,\); it must give 2 finite numbers"):
        credit.advantages(one, short)
    with pytest.raises(credit.CreditError, match="finite"):
        credit.advantages(one, lambda process, **rest: [1.0, float("nan")], anything=3)
