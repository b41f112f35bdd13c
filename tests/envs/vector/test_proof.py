"""The proof of a group at reset: its copies are alike in all that an agent sees. A refused reset changes nothing."""

from __future__ import annotations

from functools import cache

import gymnasium
import numpy as np
import pytest
from sokoban_groups import ID, ONE_BY_ONE, make
from worker_play import plain

from anchors import GroupError
from crbc_envs import GroupVectorEnv
from crbc_envs.core import Outcome
from crbc_envs.vector.members import equal, prove_alike

# ---- what is compared -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "value", "what"),
    [
        ("_label", "another room", "label 'another room'"),
        ("_admissible", ("up",), r"admissible_actions \('up',\)"),
        ("_observation", "another board", "observation 'another board'"),
        ("_anchor", "elsewhere", "anchor 'elsewhere'"),
    ],
)
def test_a_member_that_sees_something_else_is_found_out(monkeypatch, hook, value, what):
    envs = make()
    envs.reset(seed=0)
    monkeypatch.setattr(envs.members.envs[5], hook, lambda: value)
    with pytest.raises(GroupError, match=f"group 1 is not identical at reset: member 5 has {what}, member 3 has"):
        envs.reset(seed=0)


def test_a_member_whose_steps_are_counted_otherwise_is_found_out(monkeypatch):
    envs = make()
    member = envs.members.envs[1]
    info = member._info
    monkeypatch.setattr(member, "_info", lambda: {**info(), "step": 1})
    with pytest.raises(GroupError, match="group 0 is not identical at reset: member 1 has step 1, member 0 has 0"):
        envs.reset(seed=0)


@pytest.mark.parametrize("env_id", [ID, ONE_BY_ONE])
def test_one_other_byte_in_one_frame_is_found_out(monkeypatch, env_id):
    envs = GroupVectorEnv(env_id, 3, 4)
    envs.reset(seed=0)
    reset = envs.members.reset

    def blemished(*arguments):
        outcome = reset(*arguments)
        outcome.observations[6][95, 3, 2] ^= 1
        return outcome

    monkeypatch.setattr(envs.members, "reset", blemished)
    told = r"member 6 has observation .* at \(95, 3, 2\) \(1 of 27648 entries differ\), member 4 has .* there"
    with pytest.raises(GroupError, match=f"group 1 is not identical at reset: {told}"):
        envs.reset(seed=0)
    assert not envs.active.any()


def test_long_texts_are_shown_where_they_begin_to_differ():
    long = "word " * 200
    with pytest.raises(GroupError, match=r"observation \.\.\..*word two'?.*, member 0 has \.\.\..*word one") as caught:
        prove_alike([0], 2, outcome([long + "one", long + "two"]))
    assert len(str(caught.value)) < 400


def outcome(observations, **infos):
    k = len(observations)
    columns = {name: np.array([*values, None], dtype=object)[:-1] for name, values in infos.items()}
    return Outcome(observations, np.zeros(k), np.zeros(k, bool), np.zeros(k, bool), columns)


ALIKE = [
    (np.arange(5), np.arange(5)),
    (np.array([np.nan]), np.array([np.nan])),
    (float("nan"), float("nan")),
    ({"a": np.ones(2), "b": ("x", 1)}, {"b": ("x", 1), "a": np.ones(2)}),
    (np.array(["x", None], dtype=object), np.array(["x", None], dtype=object)),
    ((np.int64(3), "a"), (3, "a")),
]
UNLIKE = [
    (np.zeros(4, np.int64), np.zeros(4)),  # these six have equal bytes, or none
    (np.ones(2, np.bool_), np.ones(2, np.uint8)),
    (np.zeros(4), np.zeros((2, 2))),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.zeros(0), np.zeros((0, 2))),
    (np.array("ab"), np.array(["ab"])),
    (np.zeros(1), -np.zeros(1)),
    (np.zeros(1), None),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1}, {"b": 1}),
    ({"a": np.ones(2)}, {"a": np.array([1, 2.0])}),
    ({"a": np.ones(2)}, {"a": np.ones(2, np.float32)}),
    (("x", "y"), ("x",)),
    ((1, (2, 3)), (1, (2, 4))),
    ((), None),
    ("a", "a "),
    ("1", 1),
    (None, 0),
    (float("nan"), 0.0),
    (np.array(["x", None], dtype=object), np.array(["x", 0], dtype=object)),
]


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=repr)
def test_equal_data_are_alike(one, other):
    assert equal(one, other)
    prove_alike([0], 2, outcome([one, other], label=[one, other]))


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=repr)
def test_other_data_are_not(one, other):
    assert not equal(one, other)
    assert not equal(other, one)
    with pytest.raises(GroupError, match="group 7 is not identical at reset: member 15 has observation"):
        prove_alike([3, 7], 2, outcome([one, one, one, other]))


@pytest.mark.parametrize("shape", [(7,), (3, 5), (0,), ()])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.bool_])
def test_arrays_of_any_shape_are_compared_at_once(shape, dtype):
    table = np.repeat(np.random.default_rng(0).integers(2, size=(2, *shape)), 3, axis=0).astype(dtype)
    prove_alike([0, 1], 3, outcome(table))
    if table[4].size:
        table[4].flat[-1:] = 1 - table[4].flat[-1]
    if table.ndim == 1:
        table[4] = 1 - table[4]
    if table.size:
        with pytest.raises(GroupError, match="group 1 is not identical at reset: member 4 has observation"):
            prove_alike([0, 1], 3, outcome(table))


# ---- a reset that is refused, or of nobody, changes nothing ---------------------------------------

NOBODY = {"reset_mask": np.zeros(6, dtype=bool)}


def finished(**between):
    """Play from seed 4 to the end, with a reset in the middle that must change nothing; all that was returned."""
    envs = make(max_steps=10)
    trace = [envs.reset(seed=4)]
    for step in range(12):
        if step == 5 and "error" in between:
            with pytest.raises(between["error"], match=between["match"]):
                envs.reset(seed=between.get("seed"), options=between["options"])
        if step == 5 and "nobody" in between:
            observations, infos = envs.reset(seed=9, options=NOBODY)
            assert infos == {}
            assert observations == trace[-1][0]
        trace.append(envs.step(["up", "left", "down", "right", "?", "up"]) if envs.active.any() else ())
    return plain([trace, envs.np_random.bit_generator.state]), [sorted(one.items()) for one in envs.transition_counts()]


undisturbed = cache(finished)


def test_a_mask_that_selects_nobody_changes_nothing():
    assert finished(nobody=True) == undisturbed()


def test_a_mask_that_selects_nobody_changes_nothing_in_workers_or_with_frames():
    for options in ({"backend": "process", "num_workers": 2, "observation": "text"}, {}):
        envs = GroupVectorEnv(ID, 2, 3, **options)
        envs.reset(seed=4)
        seen = envs.step(["up"] * 6)[0]
        kept, infos = envs.reset(options=NOBODY)
        assert plain(kept) == plain(seen)
        assert infos == {}
        assert envs.active.all()
        assert all(counts.total == 3 for counts in envs.transition_counts())
        envs.close()


REFUSED = [
    ({"group_seed": [1, True]}, ValueError, r"a group seed must be an integer from 0 to 2\*\*63 - 1, got True"),
    ({"group_seed": [1, 2.0]}, ValueError, "a group seed must be an integer .*, got 2.0"),
    ({"group_seed": [-1, 2]}, ValueError, "a group seed must be an integer .*, got -1"),
    ({"group_seed": 2**63}, ValueError, "a group seed must be an integer .*, got 9223372036854775808"),
    ({"group_seed": [None, 2]}, ValueError, "a group seed must be an integer .*, got None"),
    ({"group_seed": "12"}, ValueError, "a group seed must be an integer .*, got '12'"),
    ({"group_seed": {0: 1}}, ValueError, "a group seed must be an integer .*, got {0: 1}"),
    ({"group_seed": np.zeros((2, 1), int)}, ValueError, "a group seed must be an integer"),
    ({"group_seed": [1, 2, 3]}, ValueError, "3 group seeds for 2 groups"),
    ({"reset_mask": [0, 1, 2, 3, 4, 5]}, TypeError, "reset_mask must be bool, .* it is int64"),
    ({"reset_mask": np.ones(6)}, TypeError, "reset_mask must be bool, .* it is float64"),
    ({"reset_mask": np.ones(5, bool)}, ValueError, r"reset_mask has shape \(5,\), there are 6 members"),
    ({"reset_mask": np.ones((2, 3), bool)}, ValueError, r"reset_mask has shape \(2, 3\), there are 6 members"),
    ({"reset_mask": np.arange(6) > 3}, GroupError, "the mask selects part of group 1"),
    ({"task": [1, 2, 3]}, ValueError, "3 tasks for 2 groups"),
    ({"task": 10**9}, IndexError, "is not in the train panel"),
    ({"tusk": 1}, ValueError, "unknown option 'tusk'"),
]


@pytest.mark.parametrize(("options", "error", "match"), REFUSED, ids=str)
def test_a_refused_option_changes_nothing(options, error, match):
    assert finished(options=options, error=error, match=match, seed=9) == undisturbed()


def test_a_seed_is_one_for_all_groups_or_one_each_and_may_be_of_numpy():
    envs = make()
    apart = plain(envs.reset(options={"task": 3, "group_seed": [0, 1]}))
    assert plain(envs.reset(options={"task": 3, "group_seed": range(2)})) == apart
    one = plain(envs.reset(options={"task": 3, "group_seed": 5}))
    for same in ([5, 5], (5, 5), np.array([5, 5]), np.int64(5), [np.uint8(5), 5], np.array(5)[()]):
        assert plain(envs.reset(options={"task": 3, "group_seed": same})) == one


def test_a_first_reset_takes_no_mask_of_nobody_either():
    with pytest.raises(gymnasium.error.ResetNeeded, match="the first reset takes no mask"):
        make().reset(options=NOBODY)
