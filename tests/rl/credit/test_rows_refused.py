"""Broken rows and broken estimators are refused in the caller's words, or their credit is right."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch
from credit_rows import rows_of, shuffled
from strategies import group

from anchors import INVALID, EmpiricalProcess, GroupError, InternedRollouts, Rollout, RolloutGroup, Step
from anchors import TransitionCounts as Counts
from crbc_rl import credit
from crbc_rl.credit import rows as module

GROUPS = [
    group("s:a m:c s:b -", "s:b u:d m:e +", "s:a m:<invalid> -", "s:b m:e ~s"),
    group("t:a s:b -", "t:a s:a +", "t:b ~s"),
]
BAD = (None, float("nan"), "", "x", -1, 2, 1.5, True, 10**30, [1], {}, float("inf"), "1", "<success>", INVALID, 0, 1j,
       np.float64(0.5), np.int64(1), torch.tensor(1), torch.tensor([1, 2]), object(), (1, float("nan")))  # fmt: skip


def good() -> dict[str, Any]:
    columns = rows_of(GROUPS)
    names = {"group-0": "first", "group-1": "second"}
    places = zip(columns["group"], columns["rollout"], strict=True)
    columns["rollout"] = [f"{'abcd'[i]}-{names[g]}" for g, i in places]
    return {**columns, "group": [names[g] for g in columns["group"]], "reward": [t / 8 for t in columns["step"]]}


def corrupted(rng: random.Random) -> dict[str, Any]:
    columns, _ = shuffled(good(), rng.randrange(99))
    for optional in ("valid", "reward", "final_anchor", "truncated", "score"):
        if rng.random() < 0.3:
            del columns[optional]
    name, size = rng.choice(list(columns)), len(columns["group"])
    one, other = rng.randrange(size), rng.randrange(size)
    kind = rng.randrange(8)
    if kind == 0:
        columns = {key: column[:one] + column[one + 1 :] for key, column in columns.items()}
    elif kind == 1:
        columns = {key: [*column, column[one]] for key, column in columns.items()}
    elif kind == 2:
        columns[name] = columns[name][:-1]
    elif kind == 3:
        columns[name][one] = columns[name][other]
    elif kind == 4:
        columns[name] = rng.sample(columns[name], size)
    elif kind == 5:
        columns[name] = [BAD[one % len(BAD)]] * size
    else:
        columns[name][one] = rng.choice(BAD)
    return columns


def by_hand(columns: dict[str, Any], method: str, **options: Any) -> np.ndarray:
    """The credit of rows, from `RolloutGroup`s that plain dictionaries make."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    ids: dict[Any, str] = {None: ""}
    found: dict[Any, dict[Any, dict[int, int]]] = {}
    for i, row in enumerate(rows):
        steps = found.setdefault(row["group"], {}).setdefault(row["rollout"], {})
        assert steps.setdefault(row["step"], i) == i, "a row twice"
    groups, order = [], []
    for members in found.values():
        rollouts = []
        for steps in members.values():
            places = [steps[t] for t in range(len(steps))]
            first, order = rows[places[0]], order + places
            for name in ("success", "length", "truncated", "score", "final_anchor"):
                assert all(rows[i].get(name) == first.get(name) for i in places)
            assert first["length"] == len(places)
            made = []
            for row in (rows[i] for i in places):
                ok = row.get("valid", row["action"] != INVALID)
                what = ids.setdefault(row["action"], f"i{len(ids)}") if ok else INVALID
                made.append(Step(ids.setdefault(row["anchor"], f"i{len(ids)}"), what, float(row.get("reward", 0))))
            final = ids.setdefault(first.get("final_anchor"), f"i{len(ids)}") or None
            more = {"truncated": first.get("truncated", False), "final_anchor": final, "score": first.get("score")}
            rollouts.append(Rollout(made, first["success"], **more))
        groups.append(RolloutGroup(rollouts))
    values = np.empty(len(rows))
    parts = credit.advantages_batch(groups, method, **options)
    values[order] = np.concatenate([one for part in parts for one in part])
    return values


def tried(seed: int) -> bool:
    """Whether a corruption was accepted, and then rightly so."""
    rng = random.Random(seed)
    columns, method = corrupted(rng), rng.choice(["crbc", "gigpo", "rloo"])
    earns = rng.choice(["outcome", *(["step"] if "reward" in columns else [])])
    try:
        values = credit.advantages_from_rows(**columns, method=method, earns=earns)
    except (GroupError, credit.CreditError) as error:
        text = str(error)
        assert re.search("first|second|" + "|".join(columns), text), text
        own = re.findall(r"[\d.]+", str([columns["group"], columns["rollout"]]))
        indices = re.findall(r"\b(?:rows?|rollouts?|groups?|entry|member) -?([\d.]+)", text)
        assert "\n" not in text and set(indices) <= set(own), text
        return False
    plain = {name: [v.item() if hasattr(v, "item") else v for v in column] for name, column in columns.items()}
    np.testing.assert_allclose(values, by_hand(plain, method, reward=earns), rtol=1e-12, atol=1e-12)
    return True


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 2150), marks=pytest.mark.full)], ids=len)
def test_corrupted_rows_are_refused_or_right(seeds: range) -> None:
    accepted = sum(tried(seed) for seed in seeds)
    assert 0.1 < accepted / len(seeds) < 0.6


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("action", None, "group 'first', rollout 'a-first', step 0 has no action (got None)"),
        ("action", INVALID, "step 0 has no action (got '<invalid>'); a malformed reply is valid=False"),
        ("anchor", "<failure>", "step 0 has no anchor (got '<failure>')"),
        ("anchor", torch.tensor([1, 2]), "anchor: one value per row is wanted, got one of shape (2,)"),
        ("anchor", object(), "anchor: an id is equal to its like"),
        ("group", float("nan"), "group: there is a row without, got nan"),
        ("reward", None, "step 0: reward must be a finite number, got None"),
        ("reward", "1.0", "reward must be a finite number, got '1.0'"),
        ("score", 1.5, "step 0: score must be in [0, 1], got 1.5"),
        ("length", 2**70, "step 0: length must be an integer below 2^62, got 1180591620717411303424"),
    ],
)
def test_a_cell_that_says_nothing_is_named(name: str, value: Any, message: str) -> None:
    columns = good()
    columns[name][0] = value
    with pytest.raises(GroupError, match=re.escape(message)):
        credit.advantages_from_rows(**columns)


@pytest.mark.parametrize("scale", [None, float("nan"), float("inf"), 0, "0.1"])
def test_a_scale_that_says_nothing_is_refused(scale: Any) -> None:
    with pytest.raises(credit.CreditError, match="scale must be a finite number and not 0, got"):
        credit.advantages_from_rows(**good(), scale=scale)
    with pytest.raises(credit.CreditError, match="scale must be"):
        credit.advantages(GROUPS[0], scale=scale)
    twice = [2.0 * values for values in credit.advantages(GROUPS[0])]
    np.testing.assert_array_equal(np.concatenate(credit.advantages(GROUPS[0], scale=2)), np.concatenate(twice))


def test_uneven_groups_and_groups_of_one_are_told_once(recwarn: pytest.WarningsRecorder) -> None:
    module._warned.clear()
    for _ in range(2):
        credit.advantages_from_rows(**good())
        credit.advantages_from_rows(**rows_of([group("s:a +")]))
    uneven, alone = (str(warning.message) for warning in recwarn)
    assert uneven.startswith("group 'second' has rows of 3 rollouts and group 'first' of 4: say group_size")
    assert alone.startswith("group 'group-0' has one rollout") and recwarn[0].filename == __file__
    with pytest.raises(GroupError, match="group_size: a whole number of rollouts is wanted, at least 1, got '8'"):
        credit.advantages_from_rows(**good(), group_size="8")  # type: ignore[arg-type]


UNDIVIDED = [("drgrpo", {}), ("rloo", {}), ("graft", {"w_group": 0.0}), ("crbc", {"normalise": None, "w_group": 0.0}),
             *((name, {"mode": "mean_norm"}) for name in ("gigpo", "hgpo", "gagpo", "g2po"))]  # fmt: skip


@pytest.mark.parametrize(("method", "options"), UNDIVIDED, ids=str)
def test_small_signals_are_kept_where_nothing_is_divided(method: str, options: dict[str, Any]) -> None:
    def credits(size: float, mean: float = 0.0) -> np.ndarray:
        rollouts = [[mean + 3, 1, -2], [mean, 0, 1], [mean + 1, 1, 1]]
        steps = [[Step(s, a, size * r) for s, a, r in zip("smu", "abc", one, strict=True)] for one in rollouts]
        scores = [Rollout(one, False, score=size * (i + 1)) for i, one in enumerate(steps)]
        kind = "score" if method == "g2po" else "step"
        return np.concatenate(credit.advantages(RolloutGroup(scores), method, reward=kind, **options))

    np.testing.assert_allclose(
        1e9 * credits(1e-9), credits(1.0) if method != "g2po" else 100 * credits(1e-2), atol=1e-14
    )
    if method == "gagpo":
        np.testing.assert_allclose(credits(1.0, 1e7), credits(1.0), atol=1e-7)


def odd_estimators() -> list[tuple[Any, str]]:
    def unmarked(process: Any, earned: Any) -> Any:
        return np.zeros(10)

    def texts(process: Any) -> Any:
        return ["1.0"] * 10

    def holes(process: Any) -> Any:
        return [float("nan")] * 10

    return [
        (unmarked, "unmarked has no default for its option 'earned': give it, or mark a function of (process, earned)"),
        (dict, "a credit method is a name or a function of the process, got <class 'dict'>"),
        (lambda: 0, "<lambda> takes (), and is called with (process, **options)"),
        (texts, "texts gave what is no array of numbers (list); it must give 10 finite numbers, one per step"),
        (holes, "holes gave nan among its numbers; it must give 10 finite numbers"),
        ("my:fn", "credit method 'my:fn': pass the function itself"),
    ]


@pytest.mark.parametrize(("method", "message"), odd_estimators(), ids=lambda value: str(value)[:20])
def test_what_is_no_estimator_is_told_in_a_sentence(method: Any, message: str) -> None:
    with pytest.raises(credit.CreditError, match=re.escape(message)):
        credit.advantages(GROUPS[0], method)


def test_definitions_and_numbers_beyond_what_is_counted() -> None:
    def mine(process: Any, earned: Any, level: float = 2.0) -> Any:
        return level * earned.rollouts.step

    with pytest.raises(credit.CreditError, match=r"write @credit.estimator\(\) with its parentheses above mine"):
        credit.estimator(mine)
    with pytest.raises(credit.CreditError, match="mine: rewards is a tuple of some of 'outcome', 'score', 'step'"):
        credit.estimator(rewards=("outcom",))(mine)
    with pytest.raises(credit.CreditError, match="mine cannot compute with level='x': "):
        credit.advantages(GROUPS[0], credit.estimator()(mine), level="x")
    with pytest.raises(credit.CreditError, match="crbc: group takes one value, got {}"):
        credit.advantages(GROUPS[0], group={})
    with pytest.raises(GroupError, match="action 'x' at anchor a: a reward is a finite number, got None"):
        credit.advantages(RolloutGroup([Rollout([Step("a", "x", None)], True)]))  # type: ignore[arg-type]
    counts = Counts({("a", "x", "<success>"): 10**30})
    with pytest.raises(GroupError, match="the counts add up to 10+, which is beyond 2"):
        EmpiricalProcess.from_counts(counts)
    table = {"rollout": [0], "step": [0], "anchor": [0], "action": [0], "group": [0], "success": [1]}
    with pytest.raises(GroupError, match="length: 9223372036854775808 is beyond 2"):
        InternedRollouts(**table, length=np.array([2**63], dtype=np.uint64))  # type: ignore[arg-type]


@pytest.mark.parametrize(("column", "options"), [
    ("reward", {"earns": "step"}), ("reward", {"group_reward": "step"}), ("score", {"earns": "score"})
])  # fmt: skip
def test_a_column_that_the_method_wants_is_named_where_it_is_not_given(column: str, options: dict[str, Any]) -> None:
    columns = {name: values for name, values in good().items() if name != column}
    with pytest.raises(GroupError, match=f"of the column '{column}', and no row has it"):
        credit.advantages_from_rows(**columns, method="crbc", **options)
