"""The check of noise: one start, the same play for the same noise, and other play for other noise."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from gymnasium.envs.registration import EnvSpec

from crbc_envs.checking.probe import Env, Location, Walk, episode, expect_equal, replay
from crbc_envs.vector.members import noise_seed

NOISES = 4
"""How many streams of noise each walk is played with."""

NO_NOISE = (
    "the environment declares that it is stochastic, and no walk came out otherwise under other noise; it must draw "
    "from np_random, or define seed_noise, for copies to differ"
)


def check_noise(env: Env, spec: EnvSpec | None, walks: list[Walk]) -> float:
    """Play the walks' replies under noise of their own, as members of a group do, twice each.

    The start must be that of the walk, and the second time, from a fresh instance if there is a `spec`, must equal the
    first. Returns the share of plays that come out unlike the walk.
    """
    unlike = [_play_unlike(env, walk, member) for walk in walks for member in range(NOISES)]
    if spec is not None:
        with closing(spec.make()) as fresh:
            for walk in walks:
                _play_unlike(fresh, walk, 0, _played(env, walk, 0))
    return sum(unlike) / len(unlike)


def _play_unlike(env: Env, walk: Walk, member: int, expected: Walk | None = None) -> bool:
    """Whether a walk comes out otherwise under the noise of `member`. It must come out as `expected`."""
    first, again = expected or _played(env, walk, member), _played(env, walk, member)
    with Location("noise", walk.start.name) as at:
        expect_equal(first, again.results, at, "when played again under the same noise")
        start = replace(walk, replies=[], results=walk.results[:1])
        expect_equal(start, first.results[:1], at, "before any step, under other noise")
    return first.results != walk.results


def _played(env: Env, walk: Walk, member: int) -> Walk:
    """The walk's replies under the noise of `member` in a group with the walk's seed."""
    start = replace(walk.start, noise=noise_seed(walk.start.seed, member))
    with Location("noise", walk.start.name) as at:
        results = [result.fields() for result in episode(env, start, replay(walk.replies), at)]
    return Walk(start, walk.replies[: len(results) - 1], results, walk.success)
