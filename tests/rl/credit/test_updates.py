"""`credit.advantages_of_update`: fillers, lost rows and failed members, and the figures for a trainer's log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import recorded_groups
import torch

from anchors import GroupError
from crbc_rl import credit

GROUPS = recorded_groups.read()
ROWS = [row for group in GROUPS for rollout in group.rollouts for row in rollout.rows]
SIZE = recorded_groups.SIZE


def of(method: str = "crbc", **options: Any) -> np.ndarray:
    return np.concatenate(recorded_groups.advantages(GROUPS, method, **options))


def update(rows: Any, **options: Any) -> tuple[np.ndarray, dict[str, float]]:
    return credit.advantages_of_update(rows, group_size=SIZE, **options)


@pytest.mark.parametrize(("method", "options"), recorded_groups.KINDS)
def test_each_row_gets_its_own_advantage_and_a_filler_none(method, options):
    rng = np.random.default_rng(3)
    order = rng.permutation(len(ROWS) + 5)
    rows = [ROWS[i] if i < len(ROWS) else None for i in order]
    named = {"earns" if name == "reward" else name: value for name, value in options.items()}
    values, figures = update(rows, method=method, scale=0.5, **named)
    wanted = np.append(0.5 * of(method, **options), np.zeros(5))[order]
    assert np.abs(values - wanted).max() < 1e-12
    assert figures["broken_groups"] == 0.0


def test_the_figures_count_each_rollout_once():
    values, figures = update(ROWS)
    rollouts = [rollout.rows[-1] for group in GROUPS for rollout in group.rollouts]
    assert figures["success"] == np.mean([row["success"] for row in rollouts])
    assert figures["success"] != pytest.approx(np.mean([row["success"] for row in ROWS]))  # what a mean over rows says
    assert figures["length"] == np.mean([row["length"] for row in rollouts])
    assert (figures["rollouts"], figures["groups"]) == (len(rollouts), len(GROUPS))
    assert figures["advantage_size"] == pytest.approx(np.abs(values).mean())
    assert 0.0 < figures["gate_open"] < 1.0
    assert figures["coverage/0"] < figures["coverage/full"] <= 1.0


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (lambda row: (row["group"], row["rollout"]) != (1, 2), "group 1 has rows of 3 rollouts, of 4"),
        (
            lambda row: (row["group"], row["rollout"], row["step"]) != (1, 2, 0),
            "group 1, rollout 2, step 0: the row is lost",
        ),
        (
            lambda row: (row["group"], row["rollout"], row["step"]) != (1, 2, row["length"] - 1),
            "group 1, rollout 2, step [1-9].*: the row is lost",
        ),
    ],
)
def test_a_group_that_has_lost_something_gets_nothing_and_is_counted(kept, told):
    rows = [row for row in ROWS if (row["group"], row["rollout"]) != (1, 2) or kept(row)]
    with pytest.warns(UserWarning, match=f"{told}.*1 of 3 groups get no credit"):
        values, figures = update(rows)
    broken = np.array([row["group"] == 1 for row in rows])
    assert not values[broken].any()
    assert np.array_equal(values[~broken], of()[[row["group"] != 1 for row in ROWS]])
    assert (figures["groups"], figures["broken_groups"]) == (3.0, 1.0)
    with pytest.raises(GroupError):
        credit.advantages_from_rows(**{name: [row[name] for row in rows] for name in rows[0]}, group_size=SIZE)


def test_an_update_without_a_whole_group_gets_nothing():
    with pytest.warns(UserWarning, match="3 of 3 groups"):
        values, figures = update([row for row in ROWS if row["rollout"]])
    assert not values.any() and figures["broken_groups"] == 3.0
    assert "gate_open" not in figures


def test_a_row_that_is_there_twice_is_an_error_also_in_the_place_of_a_lost_one():
    with pytest.raises(GroupError, match="group 0, rollout 0, step 0 is there twice"):
        update([*ROWS, ROWS[0]])
    with pytest.raises(GroupError, match="is there twice"):
        update([ROWS[0], *(row for row in ROWS if row is not ROWS[1])])


def test_ids_may_be_single_values_of_arrays():
    rows = [{**row, "group": np.int64(row["group"]), "rollout": torch.tensor(row["rollout"])} for row in ROWS]
    assert np.array_equal(update(rows)[0], of())


def test_scores_in_the_rows_are_for_the_method_that_takes_them():
    judged = [{**row, "scores": 0.5} for row in ROWS]
    assert np.array_equal(update(judged, method="grpo")[0], of("grpo"))
    any_options = update(judged, method=lambda process, **options: options["scores"])[0]
    assert np.array_equal(any_options, np.full(len(ROWS), 0.5))


def test_scores_and_other_columns_travel_in_the_rows():
    judged = [
        {**row, "scores": recorded_groups.score(reply), "note": "passed over"}
        for group in GROUPS
        for rollout in group.rollouts
        for reply, row in zip(rollout.replies, rollout.rows, strict=True)
    ]
    assert np.abs(update(judged[::-1], method="scores")[0][::-1] - of("scores")).max() < 1e-12


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([None, {}], "no step is left"),
        ([{name: value for name, value in ROWS[0].items() if name != "anchor"}], r"rollout 0, step 0 has no 'anchor'"),
        ([*ROWS[1:], {name: value for name, value in ROWS[0].items() if name != "score"}], "has no 'score'"),
        ([{**ROWS[0], "group": [1]}], "hashable"),
    ],
)
def test_rows_that_say_too_little_are_an_error(rows, told):
    with pytest.raises(GroupError, match=told):
        update(rows)


def test_options_are_checked_before_the_rows_are_read():
    with pytest.raises(credit.CreditError, match="gigpo"):
        update([], method="gigpoo")
    with pytest.raises(credit.CreditError, match="no option 'bta'"):
        update([], bta=0.9)


def test_a_group_of_too_many_is_an_error_and_not_a_broken_one():
    with pytest.raises(GroupError, match="rows of 5 rollouts are there, of 4"):
        update([*ROWS, {**ROWS[0], "rollout": 9, "length": 1}])


def test_a_group_of_which_nothing_is_there_is_counted_where_their_number_is_known():
    with pytest.warns(UserWarning, match="2 of 5 groups have no row at all; 2 of 5 groups get no credit"):
        values, figures = update(ROWS, num_groups=5)
    assert np.array_equal(values, of())
    assert (figures["groups"], figures["broken_groups"]) == (5.0, 2.0)


@pytest.mark.parametrize(("column", "earns"), [("score", "score"), ("reward", "step")])
def test_what_steps_earn_is_in_every_row(column, earns):
    without = [{name: value for name, value in row.items() if name != column} for row in ROWS]
    with pytest.raises(GroupError, match=f"of the column '{column}', and no row has it"):
        update(without, earns=earns)
    with pytest.raises(GroupError, match=f"has no '{column}'"):
        update([without[0], *ROWS[1:]], earns=earns)


@pytest.mark.parametrize(("name", "value"), [("length", "3"), ("length", None), ("success", "no"), ("step", 0.5)])
def test_a_cell_that_is_no_number_is_named(name, value):
    with pytest.raises(GroupError, match=rf"group 0, rollout 0: {name} is {value!r}"):
        update([{**ROWS[0], name: value}, *ROWS[1:]])
