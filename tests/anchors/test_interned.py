"""Rollouts as integers: the same process as from strings, and no row lost, repeated or moved unseen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import betas, group, groups

from anchors import EmpiricalProcess, GroupError, InternedRollouts, Rollout, RolloutGroup, Step, TransitionCounts
from crbc_rl import credit

batches = st.lists(groups(max_members=3, max_steps=5), min_size=1, max_size=4)

TWO = [group("s:a m:b m:<invalid> -", "s:b m:a +"), group("s:a +", "s:b s:<invalid> -")]
"""Rollouts 0 and 1 of group 0 with 3 and 2 steps, 2 and 3 of group 1 with 1 and 2."""


def columns(drawn=TWO):
    """The arguments of `InternedRollouts` for some groups, to change one by one."""
    made = InternedRollouts.from_groups(drawn)
    names = ("anchor", "action", "valid", "reward", "group", "length", "success", "final_anchor")
    rows = {name: getattr(made, name).copy() for name in names}
    step = np.concatenate([np.arange(n) for n in made.length])
    return {"rollout": made.rollout, "step": step, **rows}


def rows(keep, **change):
    """`columns()` with the rows `keep`, in that order, and some columns replaced."""
    given = columns()
    for name in ("rollout", "step", "anchor", "action", "valid", "reward"):
        given[name] = given[name][keep]
    return {**given, **change}


@given(batches, betas)
def test_arrays_and_strings_make_the_same_process(drawn, beta):
    named = EmpiricalProcess.from_groups(drawn)
    bare = EmpiricalProcess.from_interned(InternedRollouts(**columns(drawn)))
    np.testing.assert_array_equal(bare.counts.toarray(), named.counts.toarray())
    np.testing.assert_array_equal(bare.pair_anchor, named.pair_anchor)
    np.testing.assert_array_equal(credit.closure(bare, beta).Q, credit.closure(named, beta).Q)


@given(batches, st.sampled_from(sorted(credit.METHODS)))
def test_a_batch_of_arrays_gets_the_advantages_of_its_groups(drawn, method):
    by_name = credit.advantages_batch(drawn, method)
    by_number = credit.advantages_batch(InternedRollouts(**columns(drawn)), method)
    assert [len(values) for values in by_number] == [len(values) for values in by_name]
    for one, other in zip(by_number, by_name, strict=True):
        np.testing.assert_array_equal(np.concatenate(one), np.concatenate(other))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_torch_tensors_are_columns(kind):
    given_ = {name: torch.tensor(np.asarray(column)) for name, column in columns().items()}
    given_["reward"] = given_["reward"].to(kind).requires_grad_()
    found = credit.advantages_interned(InternedRollouts(**given_))
    np.testing.assert_array_equal(found, credit.advantages_interned(InternedRollouts(**columns())))


@given(batches, st.sampled_from([7, 10**12]), st.sampled_from([3, 10**13]))
def test_numbers_may_have_gaps_of_any_size(drawn, apart, actions_apart):
    given_ = columns(drawn)
    wide = {**given_, "anchor": given_["anchor"] * apart + 2, "action": given_["action"] * actions_apart + 1}
    wide["final_anchor"] = np.where(given_["final_anchor"] < 0, -1, given_["final_anchor"] * apart + 2)
    got = InternedRollouts(**wide)
    for name in ("anchor", "action", "final_anchor"):
        np.testing.assert_array_equal(getattr(got, name), given_[name])


def test_names_are_looked_up_only_when_asked_for():
    process = EmpiricalProcess.from_groups([TWO[0]])
    assert "anchors" not in vars(process) and "pairs" not in vars(process)
    assert process.anchors == ("s", "m")
    assert process.pairs == ((0, "a"), (0, "b"), (1, "a"), (1, "b"), (1, "<invalid>"))
    bare = EmpiricalProcess.from_interned(InternedRollouts(**columns([TWO[0]])))
    assert bare.anchors == ("0", "1")
    assert bare.pairs == ((0, "0"), (0, "1"), (1, "0"), (1, "1"), (1, "2"))


def test_names_of_numbers_with_gaps_keep_to_their_numbers():
    given_ = columns([group("s:a m:b +")])
    got = InternedRollouts(**{**given_, "anchor": [1, 3]}, anchor_names="pqrst", action_names=["a", "b"])
    assert EmpiricalProcess.from_interned(got).anchors == ("q", "s")
    with pytest.raises(GroupError, match="number 3 has no name; 2 names are given"):
        InternedRollouts(**{**given_, "anchor": [1, 3]}, anchor_names="pq")


@pytest.mark.parametrize(("apart", "unknown"), [(1, 2), (1, 90), (3, 2), (3, 4), (3, 90), (10**12, 5)])
def test_a_final_anchor_that_no_row_is_at_is_unknown(apart, unknown):
    given_ = columns([group("s:a m:b -", "s:b m:a -", "s:a -")])
    got = InternedRollouts(
        **{**given_, "anchor": given_["anchor"] * apart, "final_anchor": np.array([unknown, apart, -1])}
    )
    assert got.final_anchor.tolist() == [-1, 1, -1]


def test_a_final_anchor_is_named_by_its_number_and_an_unknown_one_is_not():
    given_ = columns([group("s:a m:b -", "s:b m:a -", "s:a -")])
    named = {"anchor_names": ["s", "m"], "action_names": ["a", "b"]}
    got = InternedRollouts(**{**given_, "final_anchor": [-1, 1, -1]}, **named)
    assert [rollout.final_anchor for rollout in got.groups()[0].rollouts] == [None, "m", None]


KEPT = ["rollout", "valid", "reward", "group", "length", "success", "score", "truncated"]
ARRAYS = [*KEPT, "anchor", "action", "final_anchor"]


def full_columns():
    """`columns()` with every optional one, each an array that the caller may change."""
    given_ = {**columns(), "score": np.array([0.0, 1.0, 1.0, 0.25]), "truncated": np.array([True, False, False, False])}
    return {name: np.array(column) for name, column in given_.items()}


def viewed(column):
    """A read-only view of an array that can be written to."""
    view = column.view()
    view.flags.writeable = False
    return view


class Series:
    """Holds an array, and gives it to whoever asks for one, as a column of a data frame does."""

    def __init__(self, values):
        self.values, self.size = values, values.size

    def __array__(self, dtype=None, copy=None):
        return self.values


@pytest.mark.parametrize(
    "hand", [lambda a: a, viewed, lambda a: a[:], Series, list], ids=["array", "view", "slice", "series", "list"]
)
def test_a_table_does_not_change_with_the_arrays_it_was_made_of(hand):
    given_ = full_columns()
    tasks = ["one", "two"]
    made = InternedRollouts(**{name: hand(column) for name, column in given_.items()}, tasks=tasks)
    before = {name: getattr(made, name).copy() for name in ARRAYS}
    credits = credit.advantages_interned(made)
    for column in given_.values():
        column[:] = 1 - column if column.dtype != np.bool_ else ~column
    tasks[0] = "another"
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(made, name), before[name], err_msg=name)
    np.testing.assert_array_equal(credit.advantages_interned(made), credits)
    assert made.tasks == ("one", "two")


def test_making_a_table_leaves_the_arguments_as_they_were():
    given_ = full_columns()
    InternedRollouts(**given_)
    for name, column in given_.items():
        assert column.flags.writeable, name
        np.testing.assert_array_equal(column, full_columns()[name], err_msg=name)


def test_the_columns_of_a_table_cannot_be_written_to():
    made = InternedRollouts(**full_columns())
    for table in (made, made.select([1, 0]), InternedRollouts.concat([made, made]), InternedRollouts.from_groups(TWO)):
        for name in ARRAYS:
            with pytest.raises(ValueError, match="read-only"):
                getattr(table, name)[0] = 0


def test_a_table_of_another_tables_columns_copies_none_of_them():
    made = InternedRollouts(**full_columns())
    again = InternedRollouts(step=made.step, **{name: getattr(made, name) for name in ARRAYS})
    for name in KEPT:
        assert getattr(again, name) is getattr(made, name), name


def test_a_row_is_told_by_its_rollout_and_step():
    made = InternedRollouts.from_groups(TWO)
    wanted = [f"rollout {i}, step {t}" for i, n in enumerate([3, 2, 1, 2]) for t in range(n)]
    assert [made.where(row) for row in range(8)] == wanted


def test_the_final_anchor_is_numbered_but_never_counted():
    steps = [Step("s", "a"), Step("m", "a")]
    ends = [Rollout(steps, False, final_anchor=name) for name in ("s", "never left", None)]
    made = InternedRollouts.from_groups([RolloutGroup(ends), RolloutGroup([ends[0]])])
    assert made.final_anchor.tolist() == [0, -1, -1, 2]
    without = RolloutGroup(Rollout(steps, False) for _ in ends)
    assert TransitionCounts.from_rollouts(ends) == TransitionCounts.from_rollouts(without.rollouts)
    process, plain = EmpiricalProcess.from_group(RolloutGroup(ends)), EmpiricalProcess.from_group(without)
    np.testing.assert_array_equal(process.counts.toarray(), plain.counts.toarray())


# ---- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (rows([0, 2, 3, 4, 5, 6, 7]), "rollout 0, step 1: the row is missing"),
        (rows([0, 1, 2, 3, 4, 5, 6]), "rollout 3, step 1: the row is missing"),
        (rows([0, 1, 2, 5, 6, 7]), "rollout 1, step 0: the row is missing"),
        (rows([0, 1, 2, 3, 4, 4, 5, 6, 7]), "rollout 1, step 1: the row is repeated"),
        (rows([0, 1, 1, 3, 4, 5, 6, 7]), "rollout 0, step 2: the row is missing"),
        (rows([0, 2, 1, 3, 4, 5, 6, 7]), "rollout 0, step 2: the row is out of order"),
        (rows([3, 4, 0, 1, 2, 5, 6, 7]), "rollout 1, step 0: the row is out of order"),
        (rows(range(8), step=[0, 1, 3, 0, 1, 0, 0, 1]), "rollout 0, step 3: no such row; that rollout has 3 steps"),
        (rows(range(8), rollout=[0, 0, 0, 1, 1, 2, 3, 4]), "rollout 4, step 1: no such row; there are 4 rollouts"),
        (rows(range(8), length=[3, 2, 1, 3]), "rollout 3, step 2: the row is missing"),
        (rows(range(8), success=[0, 0.5, 1, 0]), "rollout 1: the outcome must be binary, got 0.5"),
        (rows(range(8), success=[0, 1, 2, 0]), "rollout 2: the outcome must be binary, got 2"),
        (rows(range(8), success=[0, 1, None, 0]), "rollout 2: the outcome must be binary, got None"),
        (
            rows(range(8), anchor=[0, 1, 1, 0, 1, 2, 2, 1]),
            "rollout 3, step 1: it is of group 1, but its anchor is also one of group 0",
        ),
        (
            rows(range(8), final_anchor=[-1, -1, -1, 0]),
            "rollout 3, step 1: it is of group 1, but its final anchor is one of group 0",
        ),
        (rows(range(8), anchor=[0, 1, 1, 1, 1, 2, 2, 2]), "rollout 1, step 0: it does not start at the anchor"),
        (
            rows(range(8), action=[0, 1, 2, 1, 0, 0, 1, 3]),
            "rollout 3, step 1: a malformed reply, and its action is not",
        ),
        (rows(range(8), action=[0, 2, 2, 1, 0, 0, 1, 2]), "rollout 0, step 1: a well-formed reply, and its action is"),
        (rows(range(8), group=[0, 1, 0, 1]), "rollout 2 is of group 0; groups are numbered"),
        (rows(range(8), group=[0, 0, 2, 2]), "rollout 2 is of group 2; groups are numbered"),
        (rows(range(8), group=[1, 1, 2, 2]), "rollout 0 is of group 1; groups are numbered"),
        (rows(range(8), length=[3, 2, 0, 3]), "length: entry 2 is 0, the least is 1"),
        (rows(range(8), anchor=[0, 1, -5, 0, 1, 2, 2, 2]), "anchor: entry 2 is -5, the least is 0"),
        (rows(range(8), anchor=np.zeros(8)), "anchor: expected integers, got float64"),
        (rows(range(8), action=[0, 1]), r"action: expected 8 values in one dimension, got shape \(2,\)"),
        (rows(range(8), valid=[1, 1, 0, 1, 1, 1, 1, 7]), "valid: entry 7 must be binary, got 7"),
        (rows(range(8), reward=list("rewarded")), "reward: expected numbers, got <U1"),
    ],
)
def test_rows_that_are_not_complete_rollouts_are_refused_by_name(given_, message):
    with pytest.raises(GroupError, match=message):
        InternedRollouts(**given_)


def test_no_rollouts_at_all_are_refused():
    nothing = {name: np.zeros(0, dtype=np.int64) for name in columns()}
    with pytest.raises(GroupError, match="no rollouts given"):
        InternedRollouts(**nothing)


@given(batches, st.randoms(use_true_random=False))
def test_any_reordering_of_rows_is_noticed(drawn, random):
    given_ = columns(drawn)
    order = random.sample(range(len(given_["step"])), len(given_["step"]))
    moved = {**given_}
    for name in ("rollout", "step", "anchor", "action", "valid", "reward"):
        moved[name] = given_[name][order]
    if order == sorted(order):
        InternedRollouts(**moved)
    else:
        with pytest.raises(GroupError, match="the row is out of order"):
            InternedRollouts(**moved)


# ---- groups put together and taken out ------------------------------------------------------------


def dressed(drawn, random):
    """The groups with a task, rewards, labels, scores and ends of every kind."""

    def ended(rollout):
        steps = [Step(s.anchor, s.action, random.uniform(-1, 1), f"label of {s.anchor}") for s in rollout.steps]
        cut = not rollout.success and random.random() < 0.5
        final = random.choice([None, "never left", *(step.anchor for step in steps)])
        return Rollout(steps, rollout.success, cut, final, random.random())

    return [RolloutGroup([ended(rollout) for rollout in one.rollouts], f"task {random.random()}") for one in drawn]


def transitions(made):
    """N(s, a, x) with anchors as numbers and actions by name."""
    process = EmpiricalProcess.from_interned(made)
    counts = process.counts
    found = zip(
        (process.pairs[row] for row in counts.row.tolist()), counts.col.tolist(), counts.data.tolist(), strict=True
    )
    return sorted(found)


def assert_alike(made, wanted):
    for name in ("rollout", "step", "anchor", "valid", "reward", "group", "length", "success", "score", "truncated"):
        np.testing.assert_array_equal(getattr(made, name), getattr(wanted, name), err_msg=name)
        assert getattr(made, name).dtype == getattr(wanted, name).dtype, name
    np.testing.assert_array_equal(made.final_anchor, wanted.final_anchor)
    for name in ("anchor_names", "anchor_labels", "final_names", "tasks"):
        assert tuple(getattr(made, name)) == tuple(getattr(wanted, name)), name
    assert [made.action_names[a] for a in made.action.tolist()] == [
        wanted.action_names[a] for a in wanted.action.tolist()
    ]
    assert transitions(made) == transitions(wanted)


@given(batches, st.randoms(use_true_random=False))
def test_rollouts_are_the_groups_they_were_made_of(drawn, random):
    drawn = dressed(drawn, random)
    assert repr(InternedRollouts.from_groups(drawn).groups()) == repr(drawn)


@given(st.lists(batches, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_parts_that_are_put_together_are_what_their_groups_make_together(parts, random):
    parts = [dressed(part, random) for part in parts]
    made = InternedRollouts.concat([InternedRollouts.from_groups(part) for part in parts])
    together = [one for part in parts for one in part]
    assert_alike(made, InternedRollouts.from_groups(together))
    assert repr(made.groups()) == repr(together)
    assert len({number for number, valid in zip(made.action.tolist(), made.valid, strict=True) if not valid}) <= 1


@given(
    st.lists(batches, min_size=2, max_size=3),
    st.randoms(use_true_random=False),
    st.sampled_from(sorted(credit.METHODS)),
)
def test_every_step_keeps_its_credit_when_parts_are_put_together(parts, random, method):
    parts = [InternedRollouts.from_groups(dressed(part, random)) for part in parts]
    apart = np.concatenate([credit.advantages_interned(part, method) for part in parts])
    np.testing.assert_allclose(
        credit.advantages_interned(InternedRollouts.concat(parts), method), apart, rtol=1e-9, atol=1e-9
    )


@given(batches, st.randoms(use_true_random=False), st.data())
def test_groups_that_are_taken_out_are_what_they_make_by_themselves(drawn, random, data):
    drawn = dressed(drawn, random)
    numbers = data.draw(st.lists(st.integers(0, len(drawn) - 1), min_size=1, unique=True))
    whole = InternedRollouts.from_groups(drawn)
    made = whole.select(numbers)
    assert repr(made.groups()) == repr([drawn[g] for g in numbers])
    assert made.tasks == tuple(drawn[g].task for g in numbers)
    assert_alike(whole.select(sorted(numbers)), InternedRollouts.from_groups([drawn[g] for g in sorted(numbers)]))
    gains = credit.advantages_interned(whole, "crbc")[whole.rows_of(numbers)]
    np.testing.assert_allclose(credit.advantages_interned(made, "crbc"), gains, rtol=1e-9, atol=1e-9)


def test_a_final_anchor_stays_that_of_its_own_group():
    steps = [Step("s", "a"), Step("m", "a")]
    parts = [
        InternedRollouts.from_groups([RolloutGroup([Rollout(steps, False, final_anchor=name)])])
        for name in ("m", None, "never left", "s")
    ]
    made = InternedRollouts.concat(parts)
    assert made.final_anchor.tolist() == [1, -1, -1, 6]
    assert made.final_names == ("m", "", "never left", "s")
    assert made.select([3, 0]).final_anchor.tolist() == [2, 1]


def test_parts_without_names_are_put_together_without_names():
    bare, named = InternedRollouts(**columns()), InternedRollouts.from_groups(TWO)
    for parts in ([bare, bare], [bare, named]):
        made = InternedRollouts.concat(parts)
        assert made.anchor_names is made.action_names is made.tasks is None
        np.testing.assert_array_equal(made.anchor, InternedRollouts.concat([named, named]).anchor)
        assert made.select([1]).anchor_names is None
        with pytest.raises(GroupError, match="without the names"):
            made.groups()
