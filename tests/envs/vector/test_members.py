"""Members and recorders: infos packed as Gymnasium packs them, and integers that name what was done."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from hypothesis import given
from hypothesis import strategies as st

from anchors import FAILURE, INVALID, SUCCESS, InternedRollouts, TransitionCounts
from crbc_envs import GroupVectorEnv
from crbc_envs.vector.members import pack, scatter
from crbc_envs.vector.recorder import ActionNumbers, GroupRecorder, interned

VALUES = st.one_of(
    st.integers(-100, 100),
    st.booleans(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.tuples(st.text(max_size=2), st.text(max_size=2)),
    st.none(),
)


def gymnasium_packs(infos):
    envs = VectorEnv()
    envs.num_envs = len(infos)
    packed = {}
    for m, info in enumerate(infos):
        packed = envs._add_info(packed, info, m)
    return packed


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, column in theirs.items():
        if isinstance(column, dict):
            assert_same(ours[name], column)
        else:
            assert ours[name].dtype == column.dtype
            assert ours[name].shape == column.shape
            assert ours[name].tolist() == column.tolist()


@given(st.data())
def test_infos_are_packed_as_gymnasium_packs_them(data):
    kinds = data.draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["int", "bool", "float", "any"])))
    draw = {"int": st.integers(-9, 9), "bool": st.booleans(), "float": st.floats(-1, 1), "any": VALUES}
    draw["any"] = st.one_of(st.text(max_size=3), st.none(), st.lists(st.integers(), max_size=2).map(tuple))
    infos = [
        {name: data.draw(draw[kind]) for name, kind in kinds.items() if data.draw(st.booleans())}
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    assert_same(pack(infos), gymnasium_packs(infos))


def test_arrays_and_nested_infos_are_packed_as_gymnasium_packs_them():
    infos = [
        {"frame": np.arange(4, dtype=np.uint8), "episode": {"r": 1.5, "l": 3}},
        {"frame": np.arange(4, 8, dtype=np.uint8)},
        {"frame": np.arange(8, 12, dtype=np.uint8), "episode": {"r": 0.5}, "score": np.float32(2)},
    ]
    assert_same(pack(infos), gymnasium_packs(infos))


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3]], [[2, 0], [3]], [[1], [0], [3]]])
def test_parts_scatter_to_what_packing_all_of_them_gives(parts):
    infos = [{"anchor": f"a{m}", "step": m, "deep": {"x": m / 2}, "odd": (m,)} for m in range(4)]
    present = {m for part in parts for m in part}
    whole = scatter([(part, pack([infos[m] for m in part])) for part in parts], 4)
    assert_same(whole, gymnasium_packs([infos[m] if m in present else {} for m in range(4)]))


def test_a_recorder_counts_and_names_what_it_was_told():
    recorder = GroupRecorder("task", "s0", "start", 2, ActionNumbers())
    recorder.add(0, "up", -0.1, "s1", "one", False, False, False, 0.0)
    recorder.add(1, INVALID, -0.1, "s0", "start", False, False, False, 0.0)
    recorder.add(0, "down", 10.0, "s2", "two", True, False, True, 1.0)
    assert recorder.transition_counts() == TransitionCounts(
        {("s0", "up", "s1"): 1, ("s0", INVALID, "s0"): 1, ("s1", "down", SUCCESS): 1}
    )
    recorder.add(1, "up", -0.1, "s1", "one", False, True, False, 0.25)
    group = interned([recorder]).groups()[0]
    assert [[step.anchor for step in rollout.steps] for rollout in group.rollouts] == [["s0", "s1"], ["s0", "s0"]]
    assert [[step.label for step in rollout.steps] for rollout in group.rollouts] == [["start", "one"], ["start"] * 2]
    assert [rollout.final_anchor for rollout in group.rollouts] == ["s2", "s1"]
    assert [(rollout.success, rollout.truncated) for rollout in group.rollouts] == [(True, False), (False, True)]
    assert recorder.transition_counts() == TransitionCounts.from_rollouts(group.rollouts)
    assert ("s0", "up", FAILURE) in dict(recorder.transition_counts().items())


def random_play(num_groups, group_size, seed):
    envs = GroupVectorEnv("CRBC-Sokoban-v0", num_groups, group_size, observation="text")
    rng = np.random.default_rng(seed)
    envs.reset(seed=seed)
    while envs.active.any():
        envs.step([("up", "down", "left", "right", "?")[rng.integers(5)] for _ in range(envs.num_envs)])
    return envs


@pytest.mark.parametrize("seed", range(5))
def test_what_was_interned_on_the_way_is_what_interning_the_groups_gives(seed):
    envs = random_play(4, 3, seed)
    ours, theirs = envs.interned(), InternedRollouts.from_groups(envs.groups())
    for name in ("valid", "reward", "group", "length", "success"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    name_of = lambda rollouts: [rollouts.anchor_names[i] for i in rollouts.anchor]  # noqa: E731
    assert name_of(ours) == name_of(theirs)
    deed_of = lambda rollouts: [rollouts.action_names[i] for i in rollouts.action]  # noqa: E731
    assert deed_of(ours) == deed_of(theirs)
    final = lambda rollouts: [i if i < 0 else rollouts.anchor_names[i] for i in rollouts.final_anchor]  # noqa: E731
    assert final(ours) == final(theirs)


def test_action_numbers_begin_with_the_malformed_reply():
    numbers = ActionNumbers()
    assert (numbers["up"], numbers[INVALID], numbers["up"], numbers["down"]) == (1, 0, 1, 2)
