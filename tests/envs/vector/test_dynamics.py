"""Noise of its own for each copy of a group: from one start, alike on every backend, and after a lost worker."""

from __future__ import annotations

from contextlib import closing

import gymnasium
import noisy_envs  # noqa: F401  registers ids
import numpy as np
import pytest
import wrapped_envs  # noqa: F401  registers ids
from noisy_envs import IDS
from worker_play import plain, traces

from crbc_envs import AnchorWrapper, GroupVectorEnv
from crbc_envs.noise import seed_noise
from crbc_envs.vector.members import noise_seed


def routes(envs, seed=0, **options):
    """The anchors of every member if all do the same, by group. Actions go right, and take and open on the way."""
    envs.reset(seed=seed, options=options)
    step = 0
    while envs.active.any():
        envs.step([("right", "take key", "right", "left", "open door")[step % 5]] * envs.num_envs)
        step += 1
    return [[tuple(step.anchor for step in rollout.steps) for rollout in group.rollouts] for group in envs.groups()]


# ---- what the copies share ------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_copies_differ_under_independent_noise_and_begin_alike(env_id):
    with closing(GroupVectorEnv(env_id, 4, 8, dynamics="independent")) as envs:
        found = routes(envs, task=3)
    assert all(len({route[0] for route in group}) == 1 for group in found)
    assert np.mean([len(set(group)) for group in found]) > 2
    assert found[0] != found[1]


@pytest.mark.parametrize("env_id", IDS)
def test_copies_are_one_under_shared_noise(env_id):
    with closing(GroupVectorEnv(env_id, 4, 8, dynamics="shared")) as envs:
        found = routes(envs, task=3)
    assert all(len(set(group)) == 1 for group in found)
    assert len({group[0] for group in found}) > 1


@pytest.mark.parametrize(("env_id", "dynamics"), [("Windy-v0", "independent"), ("Corridor-v0", "shared")])
def test_the_default_is_what_the_environment_declares(env_id, dynamics):
    with closing(GroupVectorEnv(env_id, 2, 2)) as envs, closing(GroupVectorEnv(env_id, 2, 2, dynamics=dynamics)) as ask:
        assert envs.dynamics == ask.dynamics == dynamics
        assert routes(envs) == routes(ask)


def test_a_group_alone_plays_as_among_others():
    with closing(GroupVectorEnv("Windy-v0", 3, 4)) as envs, closing(GroupVectorEnv("Windy-v0", 1, 4)) as alone:
        found = routes(envs, task=[1, 2, 3], group_seed=[5, 6, 7])
        assert routes(alone, task=2, group_seed=6) == [found[1]]


def test_given_noise_does_not_change_which_tasks_are_drawn():
    with closing(GroupVectorEnv("Windy-v0", 8, 2)) as envs:
        drawn, given = (envs.reset(seed=7, options=options)[1] for options in ({}, {"group_seed": 3}))
        assert drawn["task_id"].tolist() == given["task_id"].tolist() and len(set(drawn["task_id"].tolist())) > 2


def test_a_member_is_its_environment_with_the_seeds_of_group_and_member():
    with closing(GroupVectorEnv("Trembling-v0", 2, 3)) as envs:
        found = routes(envs, task=4, group_seed=9)
    env = gymnasium.make("Trembling-v0")
    for member in range(3):
        _, info = env.reset(seed=9, options={"task": 4})
        seed_noise(env, noise_seed(9, member))
        anchors, over, step = [], False, 0
        while not over:
            anchors.append(info["anchor"])
            action = ("right", "take key", "right", "left", "open door")[step % 5]
            _, _, terminated, truncated, info = env.step(action)
            over, step = terminated or truncated, step + 1
        assert found[0][member] == found[1][member] == tuple(anchors)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [("CRBC-Sokoban-v0", {}), ("CRBC-ALFWorld-v0", {"max_steps": 6}), ("CRBC-WebShop-v0", {"max_steps": 6})],
)
def test_the_three_environments_play_alike_under_both(env_id, options):
    assert traces(env_id, 2, 3, dynamics="independent", **options) == traces(env_id, 2, 3, dynamics="shared", **options)


# ---- backends and lost workers --------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_every_backend_gives_the_same_bytes(env_id):
    given = {"env_id": env_id, "num_groups": 3, "group_size": 3, "dynamics": "independent"}
    assert traces(**given, backend="process", num_workers=2) == traces(**given)


def test_a_lost_worker_is_replayed_with_the_noise_of_each_member():
    def trace(kill, **backend):
        rng = np.random.default_rng(0)
        with closing(GroupVectorEnv("Windy-v0", 2, 4, **backend)) as envs:
            _, info = envs.reset(seed=2)
            steps = [plain(info)]
            while envs.active.any():
                if kill and len(steps) % 4 == 0:
                    envs.members.supervisors[len(steps) // 4 % 2].worker.process.kill()
                actions = [
                    rng.choice(info["admissible_actions"][m]) if live else None for m, live in enumerate(envs.active)
                ]
                *_, info = step = envs.step(actions)
                steps.append(plain(step))
            return steps, envs.groups(), envs.restarts

    *lost, restarts = trace(True, backend="process", num_workers=2)
    assert restarts >= 5
    assert tuple(lost) == trace(False)[:2]


# ---- what cannot be reached -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("OwnGenerator-v0", "OwnGenerator keeps a Generator in 'rng', whose noise would be the same in every copy"),
        ("TremblingAlone-v0", "OwnTremor keeps a Generator in 'rng', whose noise would be the same in every copy"),
        ("Unseeded-v0", r"Unseeded has no np_random, so its noise cannot be seeded: call super\(\).reset\(seed=seed\)"),
    ],
)
def test_noise_that_cannot_be_reached_is_refused_at_once(env_id, message):
    with pytest.raises(TypeError, match=message + ".* define seed_noise.*dynamics='shared'"):
        GroupVectorEnv(env_id, 1, 2)
    with closing(GroupVectorEnv(env_id, 1, 2, dynamics="shared")) as envs:
        envs.reset(seed=0)


def test_a_wrapped_environment_without_a_generator_is_refused_if_it_is_stochastic():
    class Level(gymnasium.Env):
        action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

    env = AnchorWrapper(Level(), lambda env, seen: seen, success=lambda *_: False, tasks=1, stochastic=True)
    with pytest.raises(TypeError, match="Level has no np_random"):
        env.reset(seed=0)


@pytest.mark.parametrize("value", ["both", "", True, 1])
def test_other_dynamics_are_refused(value):
    with pytest.raises(ValueError, match="dynamics must be one of shared, independent, or None; got"):
        GroupVectorEnv("Windy-v0", 1, 2, dynamics=value)
