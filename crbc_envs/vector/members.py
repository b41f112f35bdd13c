"""Members: the copies behind a GroupVectorEnv, wherever and however they are played.

Three things play members: `LocalMembers`, one `AnchorEnv` each in this process; an environment's own
batch (`AnchorEnv.batch`), many at once; and `crbc_envs.vector.workers`, either of these in other processes. To
the group they are one protocol, and the same seeds give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from numpy.typing import NDArray

from crbc_envs.core import AnchorEnv, Infos, Members, Outcome


class LocalMembers:
    """One environment per member, in this process."""

    def __init__(self, envs: Sequence[AnchorEnv[Any, Any]]) -> None:
        self.envs = list(envs)

    def reset(self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int]) -> Outcome:
        begun = [
            self.envs[m].reset(seed=seed, options={"task": task})
            for m, task, seed in zip(members, tasks, seeds, strict=True)
        ]
        k = len(begun)
        flags = np.zeros(k, dtype=np.bool_)
        return Outcome([obs for obs, _ in begun], np.zeros(k), flags, flags.copy(), pack([info for _, info in begun]))

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        taken = [self.envs[m].step(action) for m, action in zip(members, actions, strict=True)]
        observations, rewards, terminated, truncated, infos = map(list, zip(*taken, strict=True))
        return Outcome(
            observations,
            np.array(rewards, dtype=np.float64),
            np.array(terminated, dtype=np.bool_),
            np.array(truncated, dtype=np.bool_),
            pack(infos),
        )

    def render(self) -> tuple[Any, ...]:
        return tuple(env.render() for env in self.envs)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def make_member(env: str | EnvSpec, env_kwargs: dict[str, Any]) -> AnchorEnv[Any, Any]:
    """One environment, by id or spec, without Gymnasium's wrappers, which only re-check what `check_env` checks.

    Raises `TypeError` for an environment without anchors.
    """
    made = gymnasium.make(env, disable_env_checker=True, **env_kwargs)
    member = made.unwrapped
    if not isinstance(member, AnchorEnv):
        name = env if isinstance(env, str) else env.id
        raise TypeError(f"{name} is not an AnchorEnv, so it has no anchors to group by")
    if made.spec and made.spec.max_episode_steps:  # its TimeLimit wrapper is gone
        member.max_steps = min(member.max_steps, made.spec.max_episode_steps)
    return member


def make_members(env: str | EnvSpec, env_kwargs: dict[str, Any], num_envs: int) -> Members:
    """`num_envs` members in this process: the environment's own batch where it has one."""
    first = make_member(env, env_kwargs)
    batch = first.batch(num_envs)
    if batch is not None:
        return batch
    return LocalMembers([first, *(make_member(env, env_kwargs) for _ in range(num_envs - 1))])


def importable(env_id: str) -> EnvSpec:
    """The registration of an environment that was made before, with the class by its name, so that
    another process can make it which never registered it.

    Raises `ValueError` where that name leads elsewhere.
    """
    spec = gymnasium.spec(env_id.rpartition(":")[-1])
    entry = spec.entry_point
    if not isinstance(entry, str):
        name = f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"
        if "<" in name or load_env_creator(name) is not entry:
            raise ValueError(
                f"a worker cannot make {env_id}: its entry point {entry!r} cannot be imported by name. "
                'Define it at the top level of a module, or use backend="sync"'
            )
        entry = name
    return replace(spec, entry_point=entry, vector_entry_point=None)


# ---- parts ----------------------------------------------------------------------------------------


def merge(parts: Iterable[tuple[Sequence[int], Outcome]], k: int) -> Outcome:
    """What k members answered, from what some of them did at a time, `places` in the whole and outcome."""
    parts = list(parts)
    rewards, flags = np.zeros(k, dtype=np.float64), np.zeros((2, k), dtype=np.bool_)
    for places, part in parts:
        rewards[places] = part.rewards
        flags[:, places] = part.terminated, part.truncated
    infos = scatter([(places, part.infos) for places, part in parts], k)
    return Outcome(_together(parts, k), rewards, flags[0], flags[1], infos)


def _together(parts: list[tuple[Sequence[int], Outcome]], k: int) -> Any:
    """The observations of the parts: an array if each part's are, else a list."""
    first = parts[0][1].observations
    as_array = all(isinstance(part.observations, np.ndarray) for _, part in parts)
    whole: Any = np.empty((k, *first.shape[1:]), dtype=first.dtype) if as_array else [None] * k
    for places, part in parts:
        if as_array:
            whole[places] = part.observations
        else:
            for place, observation in zip(places, part.observations, strict=True):
                whole[place] = observation
    return whole


# ---- infos ----------------------------------------------------------------------------------------


def pack(infos: Sequence[dict[str, Any]]) -> Infos:
    """The infos of k environments as Gymnasium's `VectorEnv` packs them: columns and masks."""
    packed: Infos = {}
    for name in dict.fromkeys(name for info in infos for name in info):
        has = np.array([name in info for info in infos], dtype=np.bool_)
        values = [info[name] for info in infos if name in info]
        packed[name], packed[f"_{name}"] = _column(values, has), has
    return packed


def scatter(parts: Iterable[tuple[Sequence[int], Infos]], num_envs: int) -> Infos:
    """The packed infos of some members each, as those of all `num_envs`; who is in no part has none."""
    whole: Infos = {}
    for members, infos in parts:
        _write(whole, infos, np.asarray(members, dtype=np.intp), num_envs)
    return whole


def _write(whole: Infos, infos: Infos, at: NDArray[np.intp], num_envs: int) -> None:
    for name, column in infos.items():
        if isinstance(column, dict):
            _write(whole.setdefault(name, {}), column, at, num_envs)
            continue
        if name not in whole:
            blank = None if column.dtype == object else 0
            whole[name] = np.full((num_envs, *column.shape[1:]), blank, dtype=column.dtype)
        whole[name][at] = column


def _column(values: list[Any], has: NDArray[np.bool_]) -> Any:
    """One name's values, blank where a member has none."""
    first = values[0]
    if isinstance(first, dict):
        filled = iter(values)
        return pack([next(filled) if there else {} for there in has])
    k = len(has)
    if type(first) in (int, float, bool) or isinstance(first, np.number):
        column = np.zeros(k, dtype=type(first))
    elif isinstance(first, np.ndarray):
        column = np.zeros((k, *first.shape), dtype=first.dtype)
    else:
        column = np.full(k, None, dtype=object)
        for i, value in zip(np.flatnonzero(has), values, strict=True):  # one by one: a tuple is one value
            column[i] = value
        return column
    column[has] = values
    return column
