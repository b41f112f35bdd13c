"""The option `anchor` of the three environments: what each kind merges, in groups, batches and workers."""

from __future__ import annotations

from contextlib import closing

import foreign_envs  # noqa: F401  registers Countdown-v0 and wrapped Sokobans
import gymnasium
import numpy as np
import pytest
import toy_env  # noqa: F401  registers Corridor-v0
from worker_play import play
from worker_processes import inflict

from anchors import anchor_key
from anchors.key import ANCHOR_KINDS
from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.env import SokobanEnv

SMALL = {
    "CRBC-ALFWorld-v0": {"rooms": "small", "max_steps": 12},
    "CRBC-WebShop-v0": {"max_steps": 6},
    "CRBC-Sokoban-v0": {"observation": "text", "max_steps": 6},
}
"""The environments with short episodes."""

DEFAULTS = {"CRBC-ALFWorld-v0": "situation-1", "CRBC-WebShop-v0": "paper-1", "CRBC-Sokoban-v0": "paper-1"}


@pytest.mark.parametrize("env_id", DEFAULTS)
def test_the_default_is_named_and_a_fifth_kind_is_refused(env_id):
    with closing(GroupVectorEnv(env_id, 1, 2, **SMALL[env_id])) as envs:
        assert envs.anchor_name == DEFAULTS[env_id]
    for wrong in ("page", "", None, ["paper"]):
        with pytest.raises(ValueError, match="^anchor must be one of paper, situation, observation, state; got ") as no:
            gymnasium.make(env_id, anchor=wrong)
        assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    ("env_id", "kind"),
    [
        *(("CRBC-ALFWorld-v0", kind) for kind in ANCHOR_KINDS),
        ("CRBC-Sokoban-v0", "situation"),
        ("CRBC-WebShop-v0", "state"),  # each of its workers makes a shop, which takes seconds
    ],
)
@pytest.mark.slow
def test_workers_give_the_same_bytes_even_when_one_is_lost(env_id, kind, tmp_path):
    def trace(before_step=lambda: None, **backend):
        with closing(GroupVectorEnv(env_id, 2, 2, anchor=kind, **backend, **SMALL[env_id])) as envs:
            return play(envs, 4, restart=False, before_step=before_step), getattr(envs, "restarts", 0)

    steps = iter(range(100))
    kill = lambda: inflict("SIGKILL", tmp_path) if next(steps) == 3 else None  # noqa: E731
    here, there = trace(), trace(kill, backend="process", num_workers=1)
    assert there[0] == here[0]
    assert there[1] == 1


@pytest.mark.parametrize("env_id", ["HintedSokoban-v0", "Countdown-v0", "Corridor-v0"])
def test_other_environments_tell_what_they_wrap_or_that_they_have_their_own(env_id):
    with closing(GroupVectorEnv(env_id, 1, 2)) as envs:
        assert envs.anchor_name == ("paper-1" if "Sokoban" in env_id else "own-1")
        member = envs.members.envs[0]
        member.reset(seed=0, options={"task": 0})
        if "Sokoban" in env_id:
            assert member.anchor_as("state") == member.anchor_as("paper")
            assert member.distance() > 0
        else:
            assert member.distance() is None
            with pytest.raises(ValueError, match="anchors of one kind.* and not 'state'"):
                member.anchor_as("state")


def test_sokobans_kinds_are_one_and_cost_nothing_more():
    traces = []
    for kind in ANCHOR_KINDS:
        with closing(GroupVectorEnv("CRBC-Sokoban-v0", 2, 3, anchor=kind)) as envs:
            traces.append(play(envs, 0))
            assert envs.anchor_name == f"{kind}-1"
    assert traces[1:] == traces[:1] * 3
    env = SokobanEnv(anchor="state")
    _, info = env.reset(seed=7)
    assert (
        {env.anchor_as(kind) for kind in ANCHOR_KINDS} == {info["anchor"]} == {SokobanEnv().reset(seed=7)[1]["anchor"]}
    )
    with pytest.raises(ValueError, match="anchor must be one of"):
        env.anchor_as("page")


def test_sokobans_distance_falls_to_nothing_and_is_infinite_at_a_dead_end():
    env = SokobanEnv()
    found = set()
    for task in range(20):
        obs, info = env.reset(seed=task, options={"task": task})
        expert, over = env.expert(np.random.default_rng(0)), False
        left = env.distance()
        while not over:
            obs, _, over, _, info = env.step(expert(obs, info))
            assert env.distance() == left - 1
            left = env.distance()
        assert left == 0
        env.reset(seed=task, options={"task": task})
        rng = np.random.default_rng(task)
        for _ in range(env.max_steps):
            *_, over, _, _ = env.step(str(rng.choice(info["admissible_actions"])))
            found.add(env.distance() == np.inf)
            if over:
                break
    assert found == {True, False}


@pytest.mark.parametrize("observation", ["text_rich", "text", "html", "url"])
def test_webshops_kinds_are_the_page_what_is_shown_and_the_state(observation):
    env = gymnasium.make("CRBC-WebShop-v0", observation=observation).unwrapped
    env.reset(seed=3)
    for action in ("search[red shoes]", "nonsense"):
        seen = env.step(action)[0]
        keys = {kind: env.anchor_as(kind) for kind in ANCHOR_KINDS}
        assert keys["paper"] == keys["situation"] == env.session.page.anchor(observation)
        assert keys["state"] == anchor_key(env.session.state.text()) != keys["paper"]
        shown = anchor_key(seen) if observation in ("html", "url") else keys["paper"]
        assert keys["observation"] == shown
    for kind in ANCHOR_KINDS:
        other = gymnasium.make("CRBC-WebShop-v0", observation=observation, anchor=kind)
        other.reset(seed=3)
        assert other.step("search[red shoes]")[-1]["anchor"] == keys[kind]
        assert anchor_key(other.step("nonsense")[-1]["label"]) == keys[kind]


def test_webshops_distance_counts_the_steps_to_the_goals_product():
    env = gymnasium.make("CRBC-WebShop-v0").unwrapped
    reached = 0
    for task in range(30):
        env.reset(options={"task": task})
        goal = env.session.goal
        title = env.shop.product(goal.asin)[1].title
        left = env.distance()
        if left == np.inf:
            continue
        query = f"search[{title}]"
        plan = [query, f"click[{goal.asin.lower()}]", *(f"click[{v}]" for _, v in goal.options), "click[buy now]"]
        assert left == len(plan)
        *_, info = env.step(query)
        if plan[1] not in info["admissible_actions"]:
            continue
        for done, action in enumerate(plan[1:], start=2):
            assert env.distance() == len(plan) - done + 1
            *_, info = env.step(action)
        assert info["success"]
        assert env.distance() == 0
        reached += 1
    assert reached > 10
