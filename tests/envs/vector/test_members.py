"""Members and recorders: infos packed as Gymnasium packs them, and integers that name what was done."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from hypothesis import given
from hypothesis import strategies as st
from toy_env import CorridorEnv

from anchors import FAILURE, INVALID, SUCCESS, InternedRollouts, TransitionCounts
from crbc_envs import GroupVectorEnv
from crbc_envs.core import Outcome
from crbc_envs.vector.members import make_members, member_info, pack, scatter
from crbc_envs.vector.recorder import FIRST_WIDTH, Numbers, Recorder


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
    draw = {"int": st.integers(-9, 9), "bool": st.booleans(), "float": st.floats(-1, 1)}
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


UNLIKE = [
    (0, 0.5, 1),
    (True, None, 3),
    (None, 0.25, None),
    (np.arange(2), np.arange(3), np.arange(2)),
    ({"r": 1}, 2, {"l": 0.5}),
    ({"r": 1}, {"r": 0.5}, {"r": "x"}),
]


@pytest.mark.parametrize("values", UNLIKE)
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0]])
@pytest.mark.parametrize("parts", [[[0, 1, 2]], [[0], [1], [2]], [[2, 0], [1]]])
def test_values_of_unlike_types_keep_their_own_in_any_order(values, order, parts):
    infos = [{"own": values[place], "step": 3} for place in order]
    whole = scatter([(part, pack([infos[m] for m in part])) for part in parts], 3)
    for member, info in enumerate(infos):
        told = member_info(whole, member)
        assert told["step"] == 3
        assert repr(told["own"]) == repr(info["own"])  # 1 is not 1.0 or True here


def begun(*tasks, size=2):
    """A recorder of groups that begin at anchor "s0"."""
    recorder = Recorder(len(tasks), size)
    infos = {"task_id": tasks, "anchor": ["s0"] * len(tasks), "label": ["start"] * len(tasks)}
    columns = {name: np.array(column, dtype=object).repeat(size) for name, column in infos.items()}
    recorder.begin(range(len(tasks)), columns)
    return recorder


def told(recorder, *steps):
    """Record one step. Of each member: itself, action, reward, anchor, label, terminated, truncated, success, score."""
    members, actions, rewards, anchors, labels, terminated, truncated, success, score = map(
        np.array, zip(*steps, strict=True)
    )
    infos = {"action": actions, "anchor": anchors, "label": labels}
    infos = {name: column.astype(object) for name, column in infos.items()} | {"success": success, "score": score}
    recorder.add(members, Outcome(None, rewards, terminated, truncated, infos))
    for column in (actions, rewards, anchors, labels, terminated, truncated, success, score, *infos.values()):
        column[:] = column[::-1].copy()  # the caller's columns are the caller's


def test_a_recorder_counts_and_names_what_it_was_told():
    recorder = begun("task")
    goes_on = (False, False, False, 0.0)
    told(recorder, (0, "up", -0.1, "s1", "one", *goes_on), (1, INVALID, -0.1, "s0", "start", *goes_on))
    told(recorder, (0, "down", 10.0, "s2", "two", True, False, True, 1.0))
    assert recorder.transition_counts() == [
        TransitionCounts({("s0", "up", "s1"): 1, ("s0", INVALID, "s0"): 1, ("s1", "down", SUCCESS): 1})
    ]
    told(recorder, (1, "up", -0.1, "s1", "one", False, True, False, 0.25))
    group = recorder.interned().groups()[0]
    assert [[step.anchor for step in rollout.steps] for rollout in group.rollouts] == [["s0", "s1"], ["s0", "s0"]]
    assert [[step.action for step in rollout.steps] for rollout in group.rollouts] == [["up", "down"], [INVALID, "up"]]
    assert [[step.reward for step in rollout.steps] for rollout in group.rollouts] == [[-0.1, 10.0], [-0.1, -0.1]]
    assert [[step.label for step in rollout.steps] for rollout in group.rollouts] == [["start", "one"], ["start"] * 2]
    assert [rollout.final_anchor for rollout in group.rollouts] == ["s2", "s1"]
    assert [(rollout.success, rollout.truncated) for rollout in group.rollouts] == [(True, False), (False, True)]
    assert recorder.interned().score.tolist() == [1.0, 0.25]
    assert recorder.transition_counts() == [TransitionCounts.from_rollouts(group.rollouts)]
    assert ("s0", "up", FAILURE) in dict(recorder.transition_counts()[0].items())


def test_an_anchor_has_its_own_number_and_label_in_each_group():
    recorder = begun("a", "b", size=1)
    goes_on, over = (False, False, False, 0.0), (True, False, False, 0.0)
    told(recorder, (1, "up", 0.0, "s1", "one of b", *goes_on), (0, "up", 0.0, "s2", "two of a", *goes_on))
    told(recorder, (0, "up", 0.0, "s1", "one of a", *over), (1, "up", 0.0, "s2", "two of b", *over))
    rollouts = recorder.interned()
    assert list(rollouts.anchor_names) == ["s0", "s2", "s0", "s1"]
    assert list(rollouts.anchor_labels) == ["start", "two of a", "start", "one of b"]
    assert list(rollouts.final_names) == ["s1", "s2"]
    assert recorder.transition_counts() == [
        TransitionCounts({("s0", "up", seen): 1, (seen, "up", FAILURE): 1}) for seen in ("s2", "s1")
    ]


def test_a_group_that_begins_anew_leaves_the_others_as_they_are():
    recorder = begun("a", "b", size=1)
    step = ("up", 1.0, "s1", "one", True, False, True, 1.0)
    told(recorder, (0, *step), (1, *step))
    counts = recorder.transition_counts()
    recorder.begin([1], {"task_id": ["c"], "anchor": ["t0"], "label": ["new"]})
    assert recorder.transition_counts() == [counts[0], TransitionCounts()]
    told(recorder, (1, "jump", 2.0, "t1", "late", False, True, False, 0.5))
    rollouts = recorder.interned()
    assert list(rollouts.tasks) == ["a", "c"]
    assert (rollouts.success.tolist(), rollouts.truncated.tolist()) == ([True, False], [False, True])
    assert (rollouts.score.tolist(), rollouts.reward.tolist()) == ([1.0, 0.5], [1.0, 2.0])
    assert [rollouts.anchor_names[i] for i in rollouts.anchor] == ["s0", "t0"]
    assert [rollouts.action_names[i] for i in rollouts.action] == ["up", "jump"]


def test_a_member_that_runs_again_has_no_end_of_its_last_episode():
    recorder = begun("a", size=1)
    told(recorder, (0, "up", 1.0, "s1", "one", True, False, True, 1.0))
    recorder.begin([0], {"task_id": ["a"], "anchor": ["s0"], "label": ["start"]})
    told(recorder, (0, "up", 0.0, "s1", "one", False, False, False, 0.0))
    assert recorder.transition_counts() == [TransitionCounts({("s0", "up", "s1"): 1})]


def test_groups_that_begin_anew_begin_by_their_own_infos():
    recorder = begun("a", "b", "c")
    infos = {"task_id": ["d", "d", "e", "e"], "anchor": ["d0", "d0", "e0", "e0"], "label": ["dl", "dl", "el", "el"]}
    recorder.begin([0, 2], infos)
    told(recorder, *((m, "up", 0.0, "s1", "one", True, False, True, 1.0) for m in range(6)))
    rollouts = recorder.interned()
    assert list(rollouts.tasks) == ["d", "b", "e"]
    assert list(rollouts.anchor_names) == ["d0", "s0", "e0"]
    assert list(rollouts.anchor_labels) == ["dl", "start", "el"]


@pytest.mark.parametrize("length", [FIRST_WIDTH, FIRST_WIDTH + 1, 2 * FIRST_WIDTH + 1])
def test_a_rollout_may_be_of_any_length(length):
    recorder = begun("a", size=1)
    for t in range(length):
        told(recorder, (0, f"a{t}", float(t), f"s{t + 1}", f"l{t + 1}", t + 1 == length, False, True, 1.0))
    rollout = recorder.interned().groups()[0].rollouts[0]
    assert [(step.anchor, step.action, step.reward) for step in rollout.steps] == [
        (f"s{t}", f"a{t}", float(t)) for t in range(length)
    ]
    assert recorder.transition_counts() == [TransitionCounts.from_rollouts([rollout])]


def random_play(num_groups, group_size, seed):
    envs = GroupVectorEnv("CRBC-Sokoban-v0", num_groups, group_size, observation="text")
    rng = np.random.default_rng(seed)
    envs.reset(seed=seed)
    while envs.active.any():
        envs.step([("up", "down", "left", "right", "?")[rng.integers(5)] for _ in range(envs.num_envs)])
    return envs


@pytest.mark.parametrize("seed", range(2))
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


def test_names_are_numbered_in_order_of_first_appearance():
    numbers = Numbers({INVALID: 0})
    assert (numbers["up"], numbers[INVALID], numbers["up"], numbers["down"]) == (1, 0, 1, 2)


def test_no_other_grammar_is_known():
    with pytest.raises(ValueError, match="replies must be one of tags, thought; got 'loose'"):
        CorridorEnv(replies="loose")


class Opened(CorridorEnv):
    """Counts those that are open; the sixth cannot be made, and the second cannot be closed."""

    made, open = 0, 0

    def __init__(self, broken=False):
        Opened.made += 1
        if broken and Opened.made == 6:
            raise OSError("no more")
        super().__init__()
        self.number, self.ours = Opened.made, True
        Opened.open += 1

    def close(self):
        Opened.open -= self.ours
        self.ours = False
        if self.number == 2:
            raise OSError("closed already")


gymnasium.register("Opened-v0", entry_point=Opened)


@pytest.mark.parametrize("options", [{"broken": True}, {"backend": "bogus"}])
def test_a_group_that_cannot_be_made_leaves_no_environment_open(options, monkeypatch):
    monkeypatch.setattr(Opened, "made", 2)
    monkeypatch.setattr(Opened, "open", 0)
    with pytest.raises((OSError, ValueError)):
        GroupVectorEnv("Opened-v0", 1, 8, **options)
    assert Opened.open == 0 and Opened.made > 2


def test_a_member_that_cannot_be_closed_leaves_no_other_open(monkeypatch):
    monkeypatch.setattr(Opened, "made", 0)
    monkeypatch.setattr(Opened, "open", 0)
    envs = make_members("Opened-v0", {}, 4)
    with pytest.raises(OSError, match="closed already"):
        envs.close()
    assert Opened.open == 0
