"""Rows in any order, with any ids, give the credit of their groups; rows that are lost or repeated are errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from credit_rows import rows_of, shuffled
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import groups as some_groups

from anchors import INVALID, GroupError, Rollout, RolloutGroup, Step
from crbc_rl import credit

METHODS = sorted(credit.METHODS)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def wanted(groups: list[RolloutGroup], method: str) -> np.ndarray:
    return np.concatenate([one for group in credit.advantages_batch(groups, method) for one in group])


def two_groups() -> list[RolloutGroup]:
    def rollout(path: str, success: bool, **more: Any) -> Rollout:
        steps = [Step(s, INVALID if s == "c" else f"to-{s}", 0.5 + t / 8) for t, s in enumerate(path)]
        return Rollout(steps, success, **more)

    one = RolloutGroup(
        [rollout("abd", True), rollout("acab", False, truncated=True, final_anchor="d", score=0.3)], "first"
    )
    return [
        one,
        RolloutGroup([rollout("ab", False, score=0.4), rollout("aab", True, score=0.7), rollout("a", False)], "second"),
    ]


@pytest.mark.parametrize("method", METHODS)
@given(groups=st.lists(some_groups(), min_size=1, max_size=3), seed=st.integers(0, 999))
@settings(max_examples=effort(8, full=100))
def test_shuffled_rows_have_the_credit_of_their_groups(method: str, groups: list[RolloutGroup], seed: int) -> None:
    columns, order = shuffled(rows_of(groups), seed)
    found = credit.advantages_from_rows(**columns, method=method)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted(groups, method)[order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("crbc", {"reward": "score", "truncation": "successor"}),
        ("crbc", {"reward": "step", "horizon": 9, "beta": "auto", "normalise": "group"}),
        ("crbc_plus", {"reward": "score", "w_group": 1.0}),
        ("graft", {"truncation": "successor", "reward": "step"}),
        ("gagpo", {"reward": "score"}),
        ("gigpo", {"reward": "step"}),
    ],
    ids=str,
)
def test_scores_rewards_and_truncations_reach_the_method(method: str, options: dict[str, Any]) -> None:
    columns, order = shuffled(rows_of(two_groups()), 7)
    named = {"earns" if name == "reward" else name: value for name, value in options.items()}
    found = credit.advantages_from_rows(**columns, method=method, **named)
    groups = credit.advantages_batch(two_groups(), method, **options)
    np.testing.assert_allclose(found, np.concatenate([one for group in groups for one in group])[order], atol=1e-12)
    plain = {name: value for name, value in options.items() if name not in ("reward", "truncation")}
    assert np.abs(found - credit.advantages_from_rows(**columns, method=method, **plain)).max() > 1e-3


def test_the_column_reward_is_not_the_option() -> None:
    columns = rows_of(two_groups())
    with pytest.raises(credit.CreditError, match="reward is a column here, .*: say earns='step'"):
        credit.advantages_from_rows(**{**columns, "reward": "step"})
    with pytest.raises(credit.CreditError, match="reward must be 'outcome' here, got 'step'"):
        credit.advantages_from_rows(**columns, method="graphgpo", earns="step")


@pytest.mark.parametrize("kind", ["list", "tuple", "numpy", "torch", "of tensors"])
def test_columns_of_every_kind(kind: str) -> None:
    columns, order = shuffled(rows_of(two_groups()), 3)
    number = {
        name: {v: i for i, v in enumerate(dict.fromkeys(columns[name]))} for name in ("group", "anchor", "action")
    }
    plain = {name: [number[name][v] for v in columns[name]] if name in number else columns[name] for name in columns}
    plain["final_anchor"] = [-1 if v is None else number["anchor"][v] for v in columns["final_anchor"]]
    make: dict[str, Any] = {
        "list": list,
        "tuple": tuple,
        "numpy": np.array,
        "torch": torch.tensor,
        "of tensors": lambda values: list(torch.tensor(values)),
    }
    found = credit.advantages_from_rows(**{name: make[kind](column) for name, column in plain.items()})
    np.testing.assert_allclose(found, wanted(two_groups(), "crbc")[order], rtol=1e-12)


def test_optional_columns_and_the_scale() -> None:
    columns = rows_of(two_groups())
    few = {name: columns[name] for name in ("group", "rollout", "step", "anchor", "action", "success", "length")}
    np.testing.assert_allclose(credit.advantages_from_rows(**few), wanted(two_groups(), "crbc"))
    np.testing.assert_array_equal(
        credit.advantages_from_rows(**few, scale=0.25), 0.25 * credit.advantages_from_rows(**few)
    )
    np.testing.assert_allclose(
        credit.advantages_from_rows(**few, w_step=0.0),
        np.concatenate([np.concatenate(g) for g in (credit.advantages_batch(two_groups(), w_step=0.0))]),
    )


def test_one_success_in_eight_is_large() -> None:
    """The size that the documentation of `scale` speaks of."""
    branches = [Rollout([Step("a", "right" if i else "left"), Step("c" if i else "b", "on")], i == 0) for i in range(8)]
    assert max(abs(value).max() for value in credit.advantages(RolloutGroup(branches))) == pytest.approx(16, abs=0.5)


def dropped(columns: dict[str, list[Any]], row: int) -> dict[str, list[Any]]:
    return {name: column[:row] + column[row + 1 :] for name, column in columns.items()}


def test_every_lost_row_is_named() -> None:
    columns = rows_of(two_groups())
    for row in range(len(columns["group"])):
        if columns["length"][row] == 1:
            continue  # a rollout that is lost as a whole cannot be known
        group, rollout, step = (columns[name][row] for name in ("group", "rollout", "step"))
        with pytest.raises(GroupError, match=f"^group '{group}', rollout {rollout}, step {step}: the row is lost"):
            credit.advantages_from_rows(**shuffled(dropped(columns, row), row)[0])


def test_every_repeated_row_is_named() -> None:
    columns = rows_of(two_groups())
    for row in range(len(columns["group"])):
        group, rollout, step = (columns[name][row] for name in ("group", "rollout", "step"))
        twice = {name: [*column, column[row]] for name, column in columns.items()}
        place = f"^group '{group}', rollout {rollout}, step {step} is there twice; if that is of two updates"
        with pytest.raises(GroupError, match=place):
            credit.advantages_from_rows(**twice)


def changed(name: str, row: int, value: Any) -> dict[str, list[Any]]:
    columns = rows_of(two_groups())
    columns[name][row] = value
    return columns


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (changed("length", 4, 9), "group 'group-0', rollout 1, step 1: length is 9, and 4 in another row"),
        (changed("step", 2, 7), "group 'group-0', rollout 0, step 7: there is no such step; its length is 3"),
        (changed("success", 0, 0.5), "success must be binary, got 0.5; a graded outcome is a score"),
        (changed("success", 1, False), "success is False, and True in another row"),
        (changed("success", 3, float("nan")), "success must be binary, got nan"),
        (changed("truncated", 3, 2), "truncated must be binary, got 2"),
        (changed("final_anchor", 3, "z"), "final_anchor is"),
        (changed("anchor", 7, "z"), "group 'group-1', rollout 1 starts at another anchor|rollout 0"),
        (changed("anchor", 1, None), "step 1 has no anchor"),
        (changed("anchor", 1, [1]), "anchor: ids must be hashable"),
        (changed("group", 1, {}), "group: ids must be hashable"),
        (changed("step", 1, 1.0), "^group 'group-0', rollout 0: step must be an integer below 2.62, got 1.0"),
        (changed("length", 1, True), "step 1: length is 1, and 3 in another row"),
        (changed("length", 1, 10**30), "step 1: length must be an integer below 2.62"),
        ({**rows_of(two_groups()), "reward": [0.0]}, "reward: 1 values for the 13 rows"),
        ({**rows_of(two_groups()), "anchor": (x for x in "ab")}, "anchor: a list.* is wanted, got generator"),
        ({**rows_of(two_groups()), "anchor": "abc"}, "anchor: a list.* is wanted, got str"),
        ({name: [] for name in rows_of(two_groups())}, "no rows given"),
    ],
)
def test_rows_that_contradict_each_other(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(GroupError, match=message):
        credit.advantages_from_rows(**columns)


def test_a_wrong_final_anchor_names_its_own_rollout() -> None:
    columns = rows_of(two_groups())
    whose = list(zip(columns["group"], columns["rollout"], strict=True))
    columns["final_anchor"] = ["<failure>" if own == whose[-1] else "d" for own in whose]
    with pytest.raises(GroupError, match=f"group '{whose[-1][0]}', rollout {whose[-1][1]}: final_anchor is an anchor"):
        credit.advantages_from_rows(**columns)


def test_success_excludes_truncation() -> None:
    columns = rows_of(two_groups())
    columns["truncated"] = [True] * len(columns["truncated"])
    with pytest.raises(GroupError, match="group 'group-0', rollout 0: it cannot both succeed and be truncated"):
        credit.advantages_from_rows(**columns)


def test_per_token() -> None:
    mask = [[1, 1, 0], [1, 0, 0]]
    wanted = [[2.0, 2.0, 0.0], [-1.0, 0.0, 0.0]]
    np.testing.assert_array_equal(credit.per_token([2.0, -1.0], np.array(mask)), wanted)
    for kind in (torch.bool, torch.int64, torch.float32, torch.bfloat16):
        found = credit.per_token(np.array([2.0, -1.0]), torch.tensor(mask).to(kind))
        assert found.dtype == torch.float32 and found.tolist() == wanted
    with pytest.raises(GroupError, match=r"per_token: .* got \(3,\) and \(2, 3\)"):
        credit.per_token([1.0, 2.0, 3.0], np.array(mask))
    with pytest.raises(GroupError, match="per_token"):
        credit.per_token([1.0], [1.0])
