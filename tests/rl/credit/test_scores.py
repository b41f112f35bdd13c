"""Scores of steps from elsewhere: what becomes of them, every form in which they are given, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closures import TIGHT
from credit_rows import rows_of, shuffled
from strategies import group

from anchors import InternedRollouts
from crbc_rl import credit

ONE = group("s:a m:b +", "s:a m:b -", "s:b -")
TWO = group("s:a s:b -", "s:b +")
NESTED = [[0.5, 1.0], [0.0, -1.0], [0.25]]
FLAT = [0.5, 1.0, 0.0, -1.0, 0.25]
OTHER = [[1.0, 2.0], [4.0]]
ALONE = {"w_group": 0.0, "normalise": None}


def test_scores_as_credit_by_hand():
    got = credit.advantages(ONE, "scores", scores=NESTED, **ALONE)
    assert [values.tolist() for values in got] == NESTED
    got = credit.advantages(ONE, "scores", scores=NESTED, w_step=2.0, normalise=None)
    for values, own, whole in zip(got, NESTED, credit.advantages(ONE, "grpo"), strict=True):
        np.testing.assert_allclose(values, whole + 2 * np.array(own), **TIGHT)


def test_scores_as_rewards_by_hand():
    got = credit.advantages(ONE, "scores", scores=NESTED, kind="reward", gamma=0.5, **ALONE)
    assert [values.tolist() for values in got] == [[1.0, 1.0], [-0.5, -1.0], [0.25]]


def test_scores_are_standardised_by_group_or_by_anchor():
    got = np.concatenate(credit.advantages(ONE, "scores", scores=NESTED, w_group=0.0))
    wanted = (np.array(FLAT) - np.mean(FLAT)) / (np.std(FLAT, ddof=1) + 1e-6)
    np.testing.assert_allclose(got, wanted, **TIGHT)
    got = np.concatenate(credit.advantages(ONE, "scores", scores=NESTED, w_group=0.0, normalise="anchor"))
    s, m = np.array([0.5, 0.0, 0.25]), np.array([1.0, -1.0])
    s, m = ((x - x.mean()) / (x.std(ddof=1) + 1e-6) for x in (s, m))
    np.testing.assert_allclose(got, [s[0], m[0], s[1], m[1], s[2]], **TIGHT)
    flat = credit.advantages(ONE, "scores", scores=[0.3] * 5, w_group=0.0)
    assert not np.concatenate(flat).any()


@pytest.mark.parametrize(
    "form",
    [NESTED, FLAT, tuple(FLAT), np.array(FLAT), torch.tensor(FLAT), [np.array(own) for own in NESTED]],
    ids=["nested", "flat", "tuple", "numpy", "torch", "arrays"],
)
def test_every_form_of_one_group(form):
    wanted = np.concatenate(credit.advantages(ONE, "scores", scores=NESTED))
    np.testing.assert_array_equal(np.concatenate(credit.advantages(ONE, "scores", scores=form)), wanted)
    process = InternedRollouts.from_groups([ONE])
    np.testing.assert_array_equal(credit.advantages_interned(process, "scores", scores=form), wanted)


def test_every_entry_point_gives_the_same():
    alone = [credit.advantages(one, "scores", scores=own) for one, own in ((ONE, NESTED), (TWO, OTHER))]
    wanted = np.concatenate([values for group_ in alone for values in group_])
    for form in ([NESTED, OTHER], [*NESTED, *OTHER], [*FLAT, 1.0, 2.0, 4.0]):
        found = credit.advantages_batch([ONE, TWO], "scores", scores=form)
        np.testing.assert_allclose(np.concatenate([v for group_ in found for v in group_]), wanted, **TIGHT)
    columns = {**rows_of([ONE, TWO]), "scores": [*FLAT, 1.0, 2.0, 4.0]}
    mixed, order = shuffled(columns, 5)
    found = credit.advantages_from_rows(**mixed, method="scores")
    np.testing.assert_allclose(found, wanted[order], **TIGHT)


def test_a_function_of_the_rollouts_gives_them():
    def judge(rollouts: InternedRollouts) -> list[float]:
        assert rollouts.anchor_names is not None
        return [float(rollouts.anchor_names[s] == "m") for s in rollouts.anchor.tolist()]

    found = credit.advantages_batch([ONE, TWO], "scores", scores=judge, **ALONE)
    assert [[v.tolist() for v in one] for one in found] == [[[0, 1], [0, 1], [0]], [[0, 0], [0]]]
    mixed, order = shuffled(rows_of([ONE, TWO]), 5)
    by_step = credit.advantages_from_rows(**mixed, scores=lambda rollouts: rollouts.step, method="scores", **ALONE)
    assert by_step.tolist() == [mixed["step"][row] for row in range(len(order))]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "scores: none are given; pass one number per step"),
        (0.5, "scores: one number per step is wanted, got float"),
        ("0.5", "scores: one number per step is wanted, got str"),
        (FLAT[1:], "scores: 4 scores for 5 steps"),
        (NESTED[1:], "scores: 2 lists for 3 rollouts"),
        ([[0.5, 1.0], [0.0, -1.0, 1.0], [0.25]], "scores: rollout 1: 3 given for 2 steps"),
        ([[0.5, 1.0], 0.5, [0.25]], "scores: rollout 1: 0.5 given for 2 steps"),
        ([NESTED, OTHER], "scores: 2 lists for 1 groups"),
        ([NESTED[1:]], "scores: group 0: 2 given for 3 rollouts"),
        ([0.5, 1.0, 0.0, float("nan"), 0.25], "scores: rollout 1, step 1: a score is a finite number, got nan"),
        ([[0.5, None], [0.0, -1.0], [0.25]], "scores: rollout 0, step 1: a score is a finite number, got None"),
        ([[0.5, 1.0], [0.0, "good"], [0.25]], "scores: rollout 1, step 1: a score is a finite number, got 'good'"),
    ],
)
def test_scores_that_are_not_one_number_per_step_are_refused(given, message):
    with pytest.raises(credit.CreditError, match=f"^{message}"):
        credit.advantages(ONE, "scores", scores=given)


def test_a_judge_may_say_yes_and_no():
    said = [[t % 2 == 0 for t in range(len(rollout))] for rollout in ONE.rollouts]
    numbers = [[float(one) for one in rollout] for rollout in said]
    for ours, same in zip(
        credit.advantages(ONE, "scores", scores=said), credit.advantages(ONE, "scores", scores=numbers), strict=True
    ):
        np.testing.assert_array_equal(ours, same)


def test_rows_with_a_score_that_is_no_number_are_named_by_the_callers_ids():
    columns = {**rows_of([ONE, TWO]), "scores": [*FLAT, 1.0, float("inf"), 4.0]}
    mixed, _ = shuffled(columns, 2)
    with pytest.raises(credit.CreditError, match="^scores: group 'group-1', rollout 0, step 1: a score .* got inf"):
        credit.advantages_from_rows(**mixed, method="scores")
    with pytest.raises(credit.CreditError, match="scores: none are given"):
        credit.advantages_from_rows(**rows_of([ONE]), method="scores")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "value"}, "kind must be credit or reward, got 'value'"),
        ({"normalise": "step"}, "normalise must be anchor, group or None; got 'step'"),
        ({"gamma": 0.0}, "gamma must lie in"),
        ({"w_step": float("nan")}, "w_group and w_step must be finite"),
        ({"reward": "return"}, "reward must be"),
        ({"score": FLAT}, "scores has no option 'score'; did you mean 'scores'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(ONE, "scores", **{"scores": NESTED, **options})


def test_scores_for_a_method_without_them_are_refused():
    with pytest.raises(credit.CreditError, match="crbc has no option 'scores'"):
        credit.advantages_from_rows(**rows_of([ONE]), scores=FLAT)


def test_scores_of_an_update_come_by_row_and_once():
    columns, _ = shuffled({**rows_of([ONE]), "scores": FLAT}, seed=2)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    size, bare = len(ONE.rollouts), [{name: row[name] for name in row if name != "scores"} for row in rows]
    wanted = [row["scores"] for row in rows]
    found, _ = credit.advantages_of_update(rows, method="scores", group_size=size, w_group=0.0, normalise=None)
    np.testing.assert_array_equal(found, wanted)
    for given, records in ((wanted, bare), (wanted, rows), (lambda rollouts: rollouts.step, rows)):
        with pytest.raises(credit.CreditError, match="scores: give one number per row as its column, or a function"):
            credit.advantages_of_update(records, method="scores", group_size=size, scores=given)
    fixed = credit.scores.variant("fixed", w_group=0.0, scores=lambda rollouts: -rollouts.step - 1.0, normalise=None)
    found, _ = credit.advantages_of_update(rows, method=fixed, group_size=size)
    np.testing.assert_array_equal(found, [-row["step"] - 1.0 for row in rows])


def test_a_variant_is_one_of_what_it_was_made_of():
    plus, plain = credit.METHODS["crbc_plus"], credit.METHODS["crbc"]
    for trust in (None, "slope"):
        wanted = np.concatenate(credit.advantages(ONE, plus, w_group=0.0, trust=trust))
        mine = plus.variant("mine", w_group=0.0)
        np.testing.assert_array_equal(np.concatenate(credit.advantages(ONE, mine, trust=trust)), wanted)
        np.testing.assert_array_equal(np.concatenate(credit.advantages(ONE, mine.variant("two", w_group=0.0))), wanted)
    assert (
        plain.variant("wide", w_group=0.5, beta=0.9, w_step=2.0).options.items()
        >= {
            "w_group": 0.5,
            "beta": 0.9,
            "w_step": 2.0,
        }.items()
    )
    for made in (lambda: plain.variant("x", w_group=0.0, betta=0.9), lambda: plain.variant("x", 0.0, reward="step")):
        with pytest.raises(credit.CreditError, match="crbc has no '(betta|reward)' of its own to vary"):
            made()
    with pytest.raises(credit.CreditError, match="grpo has no 'step term'"):
        credit.METHODS["grpo"].variant("x", w_group=0.0)
    with pytest.raises(credit.CreditError, match="mine has no option 'betta'; did you mean 'beta'"):
        credit.check_options(mine, {"betta": 0.9})
