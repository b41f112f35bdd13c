"""Environments of other libraries in an AnchorWrapper, registered for groups and workers."""

import gymnasium
import lake_env  # noqa: F401  registers Lake-v0
from gymnasium.envs.toy_text.taxi import TaxiEnv

from crbc_envs import AnchorWrapper


def cliff(render_mode=None, **options):
    """CliffWalking begins alike whatever the seed, so it is one task. It is not in its spec how long it may take."""
    return AnchorWrapper(
        gymnasium.make("CliffWalking-v1", render_mode=render_mode),
        lambda env, cell: cell,
        success=lambda reward, terminated, info: terminated,
        actions=("up", "right", "down", "left"),
        **{"tasks": 1, **options},
    )


def taxi(**options):
    """Taxi without a spec: the seed draws the beginning, and a mask tells what is admissible."""
    names = ("south", "north", "east", "west", "pick up", "drop off")

    def admissible(env):
        mask = env.unwrapped.action_mask(env.unwrapped.s)
        return [name for name, possible in zip(names, mask, strict=True) if possible]

    return AnchorWrapper(
        TaxiEnv(),
        lambda env, state: state,
        success=lambda reward, terminated, info: reward == 20,
        actions=names,
        admissible=admissible,
        **options,
    )


def pole(**options):
    """CartPole: arrays, actions by a mapping, and a TimeLimit that cuts what has not fallen."""
    return AnchorWrapper(
        gymnasium.make("CartPole-v1", max_episode_steps=12),
        lambda env, observation: observation,
        success=lambda reward, terminated, info: False,
        show=lambda env, observation: observation,
        actions={"Push Left": 0, "Push Right": 1},
        **options,
    )


def door_key(render_mode=None, **options):
    """MiniGrid's DoorKey, which counts its own steps and truncates by itself."""
    import minigrid  # noqa: F401  registers its environments

    def phi(env, observation):
        inner = env.unwrapped
        held = inner.carrying and (inner.carrying.type, inner.carrying.color)
        return inner.grid.encode(), tuple(inner.agent_pos), inner.agent_dir, held

    return AnchorWrapper(
        gymnasium.make("MiniGrid-DoorKey-5x5-v0", max_steps=30, render_mode=render_mode),
        phi,
        success=lambda reward, terminated, info: reward > 0,
        actions=("left", "right", "forward", "pick up", "drop", "toggle", "done"),
        text="Use the key to open the door and then get to the goal.",
        **options,
    )


gymnasium.register("Cliff-v0", entry_point="wrapped_envs:cliff")
gymnasium.register("Taxi-v0", entry_point="wrapped_envs:taxi")
gymnasium.register("Pole-v0", entry_point="wrapped_envs:pole")
gymnasium.register("DoorKey-v0", entry_point="wrapped_envs:door_key")
gymnasium.register("SlipperyLake-v0", entry_point="lake_env:make", kwargs={"slippery": True})
