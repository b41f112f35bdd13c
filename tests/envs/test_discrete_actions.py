"""DiscreteActions and its vector form: numbers instead of texts, with nothing cut."""

from __future__ import annotations

from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from anchors import INVALID
from crbc_envs import DiscreteActions, GroupVectorEnv, VectorDiscreteActions
from crbc_envs.vector.members import member_info, pack

SHOP = "CRBC-WebShop-v0"
QUERIES = ("headphones", "soap bar")


def by_task(info):
    """Queries that depend on the task and on the step."""
    return [info["task"], f"{info['task_id']} {info['step']}"]


VIEWS = {
    SHOP: {"num_actions": 64, "length": 4096, "queries": by_task},
    "CRBC-ALFWorld-v0": {"num_actions": 128, "length": 8192},
    "CRBC-Sokoban-v0": {"num_actions": 4},
}


def shop(queries=QUERIES, num_actions=32, length=4096, **kwargs):
    return DiscreteActions(gymnasium.make(SHOP, **kwargs), num_actions, length, queries)


def decoded(seen):
    return bytes(seen).rstrip(b"\0").decode()


class Parrot(gymnasium.Env):
    """No `AnchorEnv`: it repeats one of three words, says how often, and refuses "no"."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(20, min_length=0)

    def __init__(self, actions=("say <word>", "wait")):
        self.actions = actions

    def info(self):
        return {"admissible_actions": list(self.actions)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "", self.info()

    def step(self, action):
        return action, 0.0, False, False, {**self.info(), "valid": action != "say no"}


# ---- what an agent sees ---------------------------------------------------------------------------


def test_a_text_is_shown_as_its_bytes():
    env = DiscreteActions(gymnasium.make("CRBC-Sokoban-v0", observation="text"), num_actions=4, length=80)
    seen, info = env.reset(seed=0)
    assert (seen.shape, seen.dtype) == ((80,), np.uint8)
    assert decoded(seen) == info["label"]


def test_a_text_of_two_byte_letters_and_half_a_pair_has_bytes():
    env = DiscreteActions(Parrot(("é", "\ud800")), num_actions=2, length=2)
    env.reset()
    assert decoded(env.step(0)[0]) == "é"
    assert decoded(env.step(1)[0]) == "?"


@pytest.mark.parametrize("space", [Box(0, 1, (3,), np.float32), Discrete(5)])
def test_observations_that_are_no_text_stay_as_they_are(space):
    below = gymnasium.wrappers.TransformObservation(gymnasium.make(SHOP), lambda text: space.sample(), space)
    env = DiscreteActions(below, 32, queries=QUERIES)
    assert env.observation_space == space
    assert env.reset(seed=0)[0] in space
    assert env.step(0)[0] in space


def test_the_spec_makes_the_view_again():
    env = shop(category="electronics", per_page=3)
    again = gymnasium.make(env.spec)
    assert again.action_space == env.action_space and again.observation_space == env.observation_space
    for number in (None, 1, 4):
        seen, *_ = env.reset(seed=1) if number is None else env.step(number)
        other, *_ = again.reset(seed=1) if number is None else again.step(number)
        np.testing.assert_array_equal(seen, other)


# ---- what it does ---------------------------------------------------------------------------------


@pytest.mark.parametrize("replies", ["thought", "tags"])
def test_numbers_work_where_replies_need_tags(replies):
    env = DiscreteActions(gymnasium.make("CRBC-Sokoban-v0", replies=replies), num_actions=4)
    env.reset(seed=0)
    assert env.step(2)[-1]["action"] == "left"
    assert env.step(7)[-1]["action"] == INVALID


@pytest.mark.parametrize("number", [-1, 3, 31])
def test_an_index_past_the_end_costs_a_step_and_changes_nothing(number):
    env = shop()
    _, before = env.reset(seed=0)
    _, reward, *_, info = env.step(number)
    assert (info["action"], info["valid"], info["step"], reward) == (INVALID, False, 1, 0.0)
    assert info["anchor"] == before["anchor"]


@pytest.mark.parametrize("replies", ["thought", "tags"])
def test_an_action_with_a_placeholder_is_one_action_per_query_at_its_place(replies):
    env = shop(replies=replies)
    env.reset(seed=0)
    assert env.texts == ("search[headphones]", "search[soap bar]", "click[search]")
    assert env.action_masks().tolist() == [True] * 3 + [False] * 29
    assert env.step(np.int64(1))[-1]["action"] == "search[soap bar]"
    assert env.texts[0] == "click[back to search]"


def test_after_the_end_nothing_is_admissible_and_the_mask_is_all_true():
    env = shop(max_steps=1)
    env.reset(seed=0)
    assert env.step(0)[3]
    assert env.texts == () and env.action_masks().all()


def test_an_environment_that_is_no_anchor_env_is_numbered_too():
    env = DiscreteActions(Parrot(), 4, 20, queries=["yes", "no"], placeholder="<word>")
    env.reset()
    assert env.texts == ("say yes", "say no", "wait")
    assert decoded(env.step(0)[0]) == "say yes"
    with pytest.raises(ValueError, match="refused 'say no' at task unknown, step unknown; leave out of the queries"):
        env.step(1)
    plain = DiscreteActions(Parrot(), 4, 20)
    plain.reset()
    assert plain.texts == ("say <word>", "wait")


def test_random_play_tells_the_sizes_it_needs():
    bare = gymnasium.make(SHOP)
    sizes = DiscreteActions.measure(bare, episodes=20, seed=1, queries=by_task)
    env = DiscreteActions(bare, *sizes, queries=by_task)
    rng = np.random.default_rng(1)
    most, longest, over = 0, 0, True
    for episode in range(20):
        seen, _ = env.reset(seed=1 if episode == 0 else None)
        over = False
        while not over:
            most, longest = max(most, len(env.texts)), max(longest, len(decoded(seen).encode()))
            seen, _, terminated, truncated, _ = env.step(rng.integers(len(env.texts)))
            over = terminated or truncated
        longest = max(longest, len(decoded(seen).encode()))
    assert sizes == (most, longest)
    assert DiscreteActions.measure(gymnasium.make("CRBC-Sokoban-v0"), episodes=1) == (4, 1)


# ---- what it refuses ------------------------------------------------------------------------------


def test_more_actions_than_numbers_are_refused_at_once():
    env = DiscreteActions(gymnasium.make("CRBC-ALFWorld-v0"), num_actions=4, length=8192)
    _, info = env.env.reset(seed=0)
    count = len(info["admissible_actions"])
    said = f"^{count} actions are admissible at task {info['task_id']}, step 0, and num_actions is 4; "
    with pytest.raises(ValueError, match=f"{said}pass num_actions={count} at least"):
        env.reset(seed=0)
    DiscreteActions(env.env, num_actions=count, length=8192).reset(seed=0)


def test_a_text_longer_than_its_bytes_is_refused_at_once():
    env = shop(length=300)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"at task \S+, step 1 has \d+ bytes, and length is 300; pass length="):
        env.step(0)
    boards = gymnasium.make("CRBC-Sokoban-v0", observation="text")
    size = len(boards.reset(seed=0)[0])
    DiscreteActions(boards, 4, size).reset(seed=0)
    with pytest.raises(ValueError, match=f"pass length={size} at least"):
        DiscreteActions(boards, 4, size - 1).reset(seed=0)


def test_an_environment_without_admissible_actions_is_refused():
    with pytest.raises(TypeError, match="not text, so it has no admissible actions"):
        DiscreteActions(gymnasium.make("CartPole-v1"), num_actions=2)
    untold = Parrot()
    untold.info = dict
    with pytest.raises(TypeError, match="info has no 'admissible_actions'"):
        DiscreteActions(untold, num_actions=2).reset()


@pytest.mark.parametrize("sizes", [(0, 1024), (4, 0)])
def test_sizes_are_positive(sizes):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        DiscreteActions(gymnasium.make("CRBC-Sokoban-v0"), *sizes)


def test_a_placeholder_needs_queries_and_queries_a_placeholder():
    with pytest.raises(ValueError, match="contain '<your query>', .* pass queries: a sequence of texts, or a function"):
        shop(queries=None)
    with pytest.raises(ValueError, match="no action has a placeholder for the queries"):
        DiscreteActions(gymnasium.make("CRBC-Sokoban-v0"), 4, queries=QUERIES)


@pytest.mark.parametrize("queries", ["headphones", ["headphones", 3]])
def test_queries_are_texts(queries):
    with pytest.raises(TypeError, match="queries must be a sequence of texts"):
        shop(queries)
    with pytest.raises(TypeError, match=r"queries at task \S+, step 0 must be a sequence of texts"):
        shop(lambda info: queries).reset(seed=0)


def test_there_is_a_query():
    with pytest.raises(ValueError, match="queries must have at least one text"):
        shop([])
    with pytest.raises(ValueError, match="step 0 must have at least one text"):
        shop(lambda info: []).reset(seed=0)


@pytest.mark.parametrize("replies", ["thought", "tags"])
@pytest.mark.parametrize(
    ("query", "why"),
    [
        (" \n", "is empty"),
        ("a" * 993, "makes an action of 1001 characters; at most 1000 are read"),
        ("a</action>b<action>c", "contains a tag of a reply"),
    ],
)
def test_a_query_that_makes_no_action_is_refused_before_it_is_tried(query, why, replies):
    with pytest.raises(ValueError, match=f"queries at task \\S+, step 0: .*{why}"):
        shop(["soap", query], replies=replies).reset(seed=0)


def test_the_longest_query_is_an_action():
    env = shop(["a" * 992])
    env.reset(seed=0)
    assert env.step(0)[-1]["valid"]


def test_a_query_that_the_environment_cannot_read_is_no_silent_invalid_action():
    env = shop(["soap [bar]"])
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"refused 'search\[soap \[bar\]\]' at task \S+, step 1; .* such as brackets"):
        env.step(0)


# ---- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", VIEWS)
@pytest.mark.parametrize("backend", ["sync", "process"])
def test_members_equal_single_environments(env_id, backend):
    view = VIEWS[env_id]
    options = {"task": [2, 5], "group_seed": [7, 8]}
    kwargs = {"max_steps": 5}
    workers = 1 if env_id == SHOP else 2  # each makes a shop of its own, which takes seconds
    group = GroupVectorEnv(env_id, num_groups=2, group_size=2, backend=backend, num_workers=workers, **kwargs)
    singles = [DiscreteActions(gymnasium.make(env_id, **kwargs), **view) for _ in range(4)]
    with closing(VectorDiscreteActions(group, **view)) as envs:
        seen, _ = envs.reset(options=options)
        for m, env in enumerate(singles):
            alone, _ = env.reset(seed=options["group_seed"][m // 2], options={"task": options["task"][m // 2]})
            np.testing.assert_array_equal(seen[m], alone)
        rng = np.random.default_rng(0)
        while envs.active.any():
            before = envs.active
            assert envs.texts == [env.texts for env in singles]
            np.testing.assert_array_equal(envs.action_masks(), [env.action_masks() for env in singles])
            actions = np.array([rng.integers(len(texts) + 1) for texts in envs.texts])
            seen, rewards, terminated, truncated, infos = envs.step(actions)
            assert seen in envs.observation_space
            for m in np.flatnonzero(before):
                alone, *rest, info = singles[m].step(actions[m])
                np.testing.assert_array_equal(seen[m], alone)
                assert [rewards[m], terminated[m], truncated[m]] == rest
                assert member_info(infos, m) == info
        assert envs.texts == [env.texts for env in singles] == [()] * 4
        assert envs.action_masks().all()
        assert len(envs.groups()) == len(envs.transition_counts()) == 2
        assert envs.interned().groups() == envs.groups() == group.groups()


def test_a_member_that_has_ended_is_ignored_and_its_mask_is_all_true():
    group = GroupVectorEnv(SHOP, num_groups=1, group_size=2, category="electronics", per_page=3)
    envs = VectorDiscreteActions(group, num_actions=32, queries=["headphones"])
    envs.reset(seed=0)
    envs.step([0, 0])
    envs.step([31, [text.startswith("click[b0gen") for text in envs.texts[1]].index(True)])
    seen, *_ = envs.step([31, envs.texts[1].index("click[buy now]")])
    assert envs.active.tolist() == [True, False]
    assert envs.texts[1] == () and envs.action_masks()[1].all() and not envs.action_masks()[0].all()
    after, rewards, *_ = envs.step([31, 10**6])
    np.testing.assert_array_equal(after[1], seen[1])
    assert rewards[1] == 0


def test_a_masked_reset_leaves_the_others_as_they_are():
    envs = VectorDiscreteActions(GroupVectorEnv(SHOP, num_groups=2, group_size=1), 32, 4096, QUERIES)
    seen, _ = envs.reset(seed=0)
    kept = seen.copy()
    moved, *_ = envs.step([0, 1])
    np.testing.assert_array_equal(seen, kept)  # a later step never writes on an earlier batch
    texts = envs.texts[1]
    again, _ = envs.reset(seed=5, options={"reset_mask": [True, False]})
    np.testing.assert_array_equal(again[1], moved[1])
    assert envs.texts[0] == ("search[headphones]", "search[soap bar]", "click[search]")
    assert envs.texts[1] == texts


def test_the_vector_form_refuses_what_the_single_form_refuses():
    group = GroupVectorEnv(SHOP, group_size=2)
    with pytest.raises(ValueError, match="pass queries"):
        VectorDiscreteActions(group, 32)
    with pytest.raises(TypeError, match="is not a GroupVectorEnv"):
        VectorDiscreteActions(gymnasium.make(SHOP), 32)
    with pytest.raises(ValueError, match="3 actions are admissible .* pass num_actions=3"):
        VectorDiscreteActions(group, 2, queries=QUERIES).reset(seed=0)
    with pytest.raises(ValueError, match="pass length="):
        VectorDiscreteActions(group, 3, 10, QUERIES).reset(seed=0)
    envs = VectorDiscreteActions(group, 32, queries=["soap [bar]"])
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="the actions have shape"):
        envs.step([0])
    with pytest.raises(ValueError, match="leave out of the queries"):
        envs.step([1, 0])


def test_an_info_is_unpacked_as_it_was_packed():
    infos = [{"a": 1, "b": {"c": "x", "d": (1, 2)}, "e": np.arange(2)}, {"a": 2, "b": {"c": "y"}, "e": np.arange(2)}]
    told = member_info(pack(infos), 0)
    np.testing.assert_array_equal(told.pop("e"), infos[0].pop("e"))
    assert told == infos[0] and type(told["a"]) is int
    assert member_info(pack([*infos[:1], {}]), 1) == {}
