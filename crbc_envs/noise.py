"""Seeds the noise of an environment that was just reset: the copies in a group begin alike and go on unlike."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils.seeding import np_random

_GENERATORS = {("numpy", "Generator"), ("numpy", "RandomState"), ("random", "Random")}
"""Package and name of the classes that draw. By name, because nothing here may draw from a global stream."""


def seed_noise(env: gymnasium.Env[Any, Any], seed: int) -> None:
    """Give an environment that was just reset the noise of `seed`. How it has begun stays as it is.

    The outermost layer with a `seed_noise` method of its own does this, as every `AnchorEnv` has one. Without one,
    `np_random` of the innermost environment is replaced, which its wrappers draw from too. Raises `TypeError` where
    that cannot reach all noise: the environment has no `np_random`, or a layer keeps another source of randomness.
    """
    layer: Any = env
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
    env.np_random, _ = np_random(seed)


def expect_np_random(env: gymnasium.Env[Any, Any]) -> None:
    """Raise `TypeError` unless the environment has seeded its `np_random`, as Gymnasium asks."""
    if getattr(env.unwrapped, "_np_random", None) is None:
        raise TypeError(
            f"{type(env.unwrapped).__name__} has no np_random, so its noise cannot be seeded: call "
            f"super().reset(seed=seed) in its reset and draw from self.np_random. {_WAY_OUT}"
        )


def _refuse_other_sources(layer: gymnasium.Env[Any, Any], known: str) -> None:
    for name, value in getattr(layer, "__dict__", {}).items():
        drawing = any((kind.__module__.partition(".")[0], kind.__name__) in _GENERATORS for kind in type(value).__mro__)
        if name != known and (drawing or isinstance(value, gymnasium.Env)):
            raise TypeError(
                f"{type(layer).__name__} keeps a {type(value).__name__} in {name!r}, whose noise would be the same in "
                f"every copy: draw from self.np_random instead. {_WAY_OUT}"
            )


_WAY_OUT = "Or define seed_noise(seed), which seeds all its noise, or choose dynamics='shared'"
