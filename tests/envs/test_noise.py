"""Random streams by name, and noise that is given to an environment after its start."""

from __future__ import annotations

import gymnasium
import noisy_envs
import numpy as np
import pytest

from crbc_envs.noise import seed_noise
from crbc_envs.tasks import rng, stream
from crbc_envs.vector.members import noise_seed


def test_streams_are_those_of_their_names():
    """These numbers are in every record: a change of them changes all seeded runs."""
    found = [stream("noise", 0, 0), stream("noise", 0, 1), stream("reply", 7, 3, 2)]
    assert found == [1489484203, 349722638, 1310549185]
    assert noise_seed(0, 1) == stream("noise", 0, 1)
    assert noise_seed(9, "rollout 0") == 90295025, "in every process"
    assert len({noise_seed(group, member) for group in range(50) for member in range(50)}) == 2_500
    assert rng("a", 1).random() == rng("a", 1).random() != rng("a", 2).random()


def test_wrappers_and_what_is_inside_draw_from_one_generator():
    env = noisy_envs.trembling()
    env.reset(seed=3, options={"task": 0})
    seed_noise(env, 5)
    assert env.np_random is env.unwrapped.np_random
    drawn = env.np_random.random()
    assert drawn == gymnasium.utils.seeding.np_random(5)[0].random()
    env.reset(seed=3, options={"task": 0})
    assert env.np_random.random() != drawn


def test_a_method_of_the_environment_comes_first():
    env = noisy_envs.Tremor(noisy_envs.OwnSeeding())
    env.reset(seed=3, options={"task": 0})
    before = env.np_random.bit_generator.state
    seed_noise(env, 5)
    assert env.np_random.bit_generator.state == before
    assert env.unwrapped.rng.random() == np.random.default_rng(5).random()


def test_a_wrapper_with_its_own_generator_is_refused_before_anything_is_seeded():
    env = noisy_envs.trembling_alone()
    env.reset(seed=3, options={"task": 0})
    before = env.np_random.bit_generator.state
    with pytest.raises(TypeError, match="OwnTremor keeps a Generator in 'rng'"):
        seed_noise(env, 5)
    assert env.np_random.bit_generator.state == before
