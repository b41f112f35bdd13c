"""Random streams by name, and the noise of an environment whose copies start alike.

The seed of a stream is computed from its name and numbers. So it depends on no process, no batch and no order of calls.
"""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

SHARED = "shared"
INDEPENDENT = "independent"
DYNAMICS = (SHARED, INDEPENDENT)
"""Whether the copies of a group share one stream of noise, or have one each."""

_SOURCES = (np.random.Generator, np.random.RandomState, random.Random, gymnasium.Env)


def stream(name: str, *path: int) -> int:
    """The seed of one random stream, below 2**31, computed from its name and numbers."""
    return int(np.random.SeedSequence([*name.encode(), *path]).generate_state(1)[0] >> 1)


def rng(name: str, *path: int) -> np.random.Generator:
    """A generator for one random stream; see `stream`."""
    return np.random.default_rng(stream(name, *path))


def noise_seed(group_seed: int, member: int) -> int:
    """The seed of the noise of one member, counted within its group."""
    return stream("noise", group_seed, member)


def seed_noise(env: gymnasium.Env[Any, Any], seed: int) -> None:
    """Give an environment that was just reset the noise of `seed`. How it has begun stays as it is.

    The outermost layer with a `seed_noise` method of its own does this, as every `AnchorEnv` has one. Without one,
    `np_random` of the innermost environment is replaced, which its wrappers draw from too. Raises `TypeError` where
    that cannot reach all noise: the environment has no `np_random`, or a layer keeps another source of randomness.
    """
    layer = env
    while isinstance(layer, gymnasium.Wrapper) and not hasattr(type(layer), "seed_noise"):
        _refuse_other_sources(layer, "env")
        layer = layer.env
    if hasattr(type(layer), "seed_noise"):
        layer.seed_noise(seed)
    else:
        replace_np_random(layer, seed)


def replace_np_random(env: gymnasium.Env[Any, Any], seed: int) -> None:
    """Replace the generator of one environment without wrappers. Raises `TypeError` as `seed_noise` does."""
    expect_np_random(env)
    _refuse_other_sources(env, "_np_random")
    env.np_random, _ = seeding.np_random(seed)


def expect_np_random(env: gymnasium.Env[Any, Any]) -> None:
    """Raise `TypeError` unless the environment has seeded its `np_random`, as Gymnasium asks."""
    if getattr(env.unwrapped, "_np_random", None) is None:
        raise TypeError(
            f"{type(env.unwrapped).__name__} has no np_random, so its noise cannot be seeded: call "
            f"super().reset(seed=seed) in its reset and draw from self.np_random. {_WAY_OUT}"
        )


def _refuse_other_sources(layer: gymnasium.Env[Any, Any], known: str) -> None:
    for name, value in getattr(layer, "__dict__", {}).items():
        if name != known and isinstance(value, _SOURCES):
            raise TypeError(
                f"{type(layer).__name__} keeps a {type(value).__name__} in {name!r}, whose noise would be the same in "
                f"every copy: draw from self.np_random instead. {_WAY_OUT}"
            )


_WAY_OUT = "Or define seed_noise(seed), which seeds all its noise, or choose dynamics='shared'"
