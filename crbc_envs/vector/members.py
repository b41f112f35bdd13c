"""Members: the environment copies behind a `GroupVectorEnv`, and whether those of a group begin alike.

There are three implementations of the `Members` protocol. `LocalMembers` has one environment per member in
this process. An environment's own batch (`AnchorEnv.batch`) steps many members at once.
`crbc_envs.vector.workers` runs either of these in other processes. The same seeds give the same bytes in all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import repeat, takewhile
from operator import is_
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from numpy.typing import NDArray

from anchors import GroupError
from crbc_envs.core import Infos, Members, Outcome
from crbc_envs.noise import seed_noise
from crbc_envs.tasks import stream
from crbc_envs.vector.contract import ForeignEnv, Member, unwrapped_member

SHARED = "shared"
INDEPENDENT = "independent"
DYNAMICS = (SHARED, INDEPENDENT)
"""Whether the copies of a group share one stream of noise, or have one each: `dynamics` of `GroupVectorEnv`."""


def noise_seed(group_seed: int, member: int | str) -> int:
    """The seed of the noise of one member: its number within the group, or a text that stands for it."""
    if isinstance(member, str):
        member = int(hashlib.sha256(member.encode(errors="surrogatepass")).hexdigest()[:15], 16)
    return stream("noise", group_seed, member)


def dynamics_of(env: Member, dynamics: str | None) -> str:
    """The given dynamics, or those of the environment: independent where it is stochastic. Raises `ValueError` for
    others."""
    if dynamics is not None and dynamics not in DYNAMICS:
        raise ValueError(f"dynamics must be one of {', '.join(DYNAMICS)}, or None; got {dynamics!r}")
    return dynamics or (INDEPENDENT if env.stochastic else SHARED)


def begin(
    env: gymnasium.Env[Any, Any], seed: int, options: dict[str, Any] | None, noise: int | None = None
) -> tuple[Any, dict[str, Any]]:
    """Reset an environment as a member of a group. `noise` seeds what happens later, if that is not left to `seed`."""
    observation, info = env.reset(seed=seed, options=options)
    if noise is not None:
        seed_noise(env, noise)
    return observation, info


class LocalMembers:
    """One environment per member, in this process."""

    def __init__(self, envs: Sequence[Member]) -> None:
        self.envs = list(envs)

    def reset(
        self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int], noise: Sequence[int] | None = None
    ) -> Outcome:
        noises: Sequence[int | None] = noise or [None] * len(seeds)
        results = [
            begin(self.envs[m], seed, {"task": task}, own)
            for m, task, seed, own in zip(members, tasks, seeds, noises, strict=True)
        ]
        k = len(results)
        flags = np.zeros(k, dtype=np.bool_)
        observations, infos = [obs for obs, _ in results], pack([info for _, info in results])
        return Outcome(observations, np.zeros(k), flags, flags.copy(), infos)

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        results = [self.envs[m].step(action) for m, action in zip(members, actions, strict=True)]
        observations, rewards, terminated, truncated, infos = map(list, zip(*results, strict=True))
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
        with ExitStack() as each:  # one that raises leaves none open
            for env in self.envs:
                each.callback(env.close)


def make_member(env: str | EnvSpec, env_kwargs: dict[str, Any]) -> Member:
    """Make one environment by id or spec.

    An `AnchorEnv` comes without Gymnasium's own wrappers: they only repeat the checks of `check_env`, and their time
    limit becomes its `max_steps`. Anything else is kept as it is made and becomes a `ForeignEnv`.
    """
    name = name_of(env)
    made = gymnasium.make(env, disable_env_checker=True, **env_kwargs)
    return unwrapped_member(made) or ForeignEnv(made, name)


def make_members(env: str | EnvSpec, env_kwargs: dict[str, Any], num_envs: int) -> Members:
    """Make `num_envs` members in this process. Uses the environment's own batch if it has one."""
    first = make_member(env, env_kwargs)
    batch = first.batch(num_envs)
    if batch is not None:
        return batch
    members = LocalMembers([first])
    with ExitStack() as failed:
        failed.callback(members.close)
        members.envs += (make_member(env, env_kwargs) for _ in range(num_envs - 1))
        failed.pop_all()
    return members


def name_of(env: str | EnvSpec) -> str:
    """The id of an environment, without the module that "module:id" names."""
    return env.id if isinstance(env, EnvSpec) else env.rpartition(":")[-1]


def creator(env: str | EnvSpec) -> Any:
    """What makes an environment when it is called: mostly its class."""
    spec = env if isinstance(env, EnvSpec) else gymnasium.spec(name_of(env))
    return load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point


def declared(environment: Any, attribute: str) -> Any:
    """What an environment or its creator names by import path ("module:NAME") in an attribute; None where it names
    nothing."""
    place = getattr(environment, attribute, "")
    return load_env_creator(place) if place else None


def importable_spec(env: str | EnvSpec) -> EnvSpec:
    """The spec of an environment, with its entry point as an import path ("module:Class").

    Another process can make the environment from it without registering it first. Raises `ValueError` if
    the import path does not give the same entry point.
    """
    spec = env if isinstance(env, EnvSpec) else gymnasium.spec(name_of(env))
    entry = spec.entry_point
    if not isinstance(entry, str):
        name = f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"
        try:
            found = None if "<" in name else load_env_creator(name)
        except (AttributeError, ImportError, ValueError):  # of a partial, and of a method of a class
            found = None
        if found is not entry:
            raise ValueError(
                f"a worker cannot make {spec.id}: its entry point {entry!r} cannot be imported by name. "
                'Define it at the top level of a module, or use backend="sync"'
            )
        entry = name
    return replace(spec, entry_point=entry, vector_entry_point=None)


# ---- whether the members of a group begin alike ------------------------------------------------------------

SEEN = ("task_id", "task", "anchor", "label", "admissible_actions", "step")
"""What must be equal of the infos, in the order in which it is compared. The observation comes last."""

LONGEST = 100
"""Longer values are shown in part."""


def prove_alike(groups: Sequence[int], size: int, outcome: Outcome) -> None:
    """Check that the copies of each group begin alike: equal infos (`SEEN`), and observations equal to the byte.

    `outcome` has `size` members for each of `groups`, in order. Raises `GroupError` at the first difference.
    """
    columns = [(name, outcome.infos[name]) for name in SEEN if name in outcome.infos]
    observations = outcome.observations
    if isinstance(observations, np.ndarray):
        unlike = _unlike_rows(observations, size)
        columns += [("observation", observations)] if unlike.any() else []  # else nothing is left to compare
    else:
        columns.append(("observation", observations))
    for place, group in enumerate(groups):
        part = slice(place * size, (place + 1) * size)
        for name, column in columns:
            values = column[part]
            expected, *rest = values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else values
            if all(map(is_, rest, repeat(expected))):
                continue
            for m, value in enumerate(rest, group * size + 1):
                if not equal(value, expected):
                    one, other = _shown(value, expected)
                    raise GroupError(
                        f"group {group} is not identical at reset: member {m} has {name} {one}, "
                        f"member {group * size} has {other}"
                    )


def _unlike_rows(table: NDArray[Any], size: int) -> NDArray[np.bool_]:
    """The mask of the rows whose bytes are not those of the first row of their group. `size` rows are a group."""
    if table.dtype.hasobject or not table.size:
        return np.ones(len(table), dtype=np.bool_)  # compared one by one
    unlike = []
    for first in range(0, len(table), size):
        expected = table[first].tobytes()
        unlike += [row.tobytes() != expected for row in table[first : first + size]]
    return np.array(unlike)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same data: arrays to the byte, containers entry by entry, NaN like NaN."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _equal_arrays(np.asarray(one), np.asarray(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) or (one != one and other != other)


def _equal_arrays(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.hasobject:
        return equal(one.tolist(), other.tolist())
    return one.tobytes() == other.tobytes()


def _shown(value: Any, expected: Any) -> tuple[str, str]:
    """Two different values as an error shows them: from a little before the place where long ones begin to differ."""
    if isinstance(value, np.ndarray) and isinstance(expected, np.ndarray) and value.shape == expected.shape:
        where = np.flatnonzero((value != expected).ravel())
        if value.size > 8 and where.size:
            place = tuple(int(i) for i in np.unravel_index(where[0], value.shape))
            return (
                f"{value[place]!r} at {place} ({where.size} of {value.size} entries differ)",
                f"{expected[place]!r} there",
            )
    texts = [repr(value), repr(expected)]
    start = 0
    if max(map(len, texts)) > LONGEST:
        common = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        start = max(0, sum(1 for _ in common) - LONGEST // 3)
    cut = [
        "..." * (start > 0) + text[start : start + LONGEST] + "..." * (len(text) > start + LONGEST) for text in texts
    ]
    return cut[0], cut[1]


# ---- merging results ----------------------------------------------------------------------------------------


def merge(parts: Iterable[tuple[Sequence[int], Outcome]], k: int) -> Outcome:
    """The outcome of k members from the outcomes of some of them: (indices into the k, outcome) for each part."""
    parts = list(parts)
    rewards, flags = np.zeros(k, dtype=np.float64), np.zeros((2, k), dtype=np.bool_)
    for places, part in parts:
        rewards[places] = part.rewards
        flags[:, places] = part.terminated, part.truncated
    infos = scatter([(places, part.infos) for places, part in parts], k)
    return Outcome(_merge_observations(parts, k), rewards, flags[0], flags[1], infos)


def _merge_observations(parts: list[tuple[Sequence[int], Outcome]], k: int) -> Any:
    """The observations of all parts: an array if every part has an array, otherwise a list."""
    first = parts[0][1].observations
    as_array = all(isinstance(part.observations, np.ndarray) for _, part in parts)
    merged: Any = np.empty((k, *first.shape[1:]), dtype=first.dtype) if as_array else [None] * k
    for places, part in parts:
        if as_array:
            merged[places] = part.observations
        else:
            for place, observation in zip(places, part.observations, strict=True):
                merged[place] = observation
    return merged


# ---- infos ----------------------------------------------------------------------------------------


def pack(infos: Sequence[dict[str, Any]]) -> Infos:
    """Pack the infos of k environments as Gymnasium's `VectorEnv` does: a column and a mask per name."""
    packed: Infos = {}
    names = dict.fromkeys(name for info in infos for name in info)
    for name in [name for name in names if name[:1] != "_" or name[1:] not in names]:
        mask = np.array([name in info for info in infos], dtype=np.bool_)
        values = [info[name] for info in infos if name in info]
        packed[name], packed[f"_{name}"] = _column(values, mask), mask
    return packed


def member_info(infos: Infos, member: int) -> dict[str, Any]:
    """The info of `member` as its environment gave it, from `infos`, a column and a mask (num_envs,) for each name."""
    info: dict[str, Any] = {}
    for name, column in infos.items():
        if name.startswith("_") or not infos[f"_{name}"][member]:
            continue
        if isinstance(column, dict):
            info[name] = member_info(column, member)
        else:
            info[name] = column[member].item() if isinstance(column[member], np.generic) else column[member]
    return info


def scatter(parts: Iterable[tuple[Sequence[int], Infos]], num_envs: int) -> Infos:
    """Merge the packed infos of disjoint members into those of all `num_envs`. Members in no part have no info."""
    merged: Infos = {}
    for members, infos in parts:
        _write(merged, infos, np.asarray(members, dtype=np.intp), num_envs)
    return merged


def _write(merged: Infos, infos: Infos, at: NDArray[np.intp], num_envs: int) -> None:
    for name, column in infos.items():
        if name in merged and not _mergeable(merged[name], column):
            merged[name], column = _objects(merged, name), _objects(infos, name)
        if isinstance(column, dict):
            _write(merged.setdefault(name, {}), column, at, num_envs)
            continue
        if name not in merged:
            blank = np.empty if column.dtype == object else np.zeros  # an empty array of objects holds None
            merged[name] = blank((num_envs, *column.shape[1:]), dtype=column.dtype)
        merged[name][at] = column


def _mergeable(one: Any, other: Any) -> bool:
    """Whether two columns hold the same kind of value, so that one column holds both without changing any."""
    if isinstance(one, dict) or isinstance(other, dict):
        return isinstance(one, dict) and isinstance(other, dict)
    return (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:])


def _objects(infos: Infos, name: str) -> NDArray[Any]:
    """The column of one name as objects: each value as its environment gave it."""
    mask = infos[f"_{name}"]
    one = {name: infos[name], f"_{name}": mask}
    return _object_column([member_info(one, int(member))[name] for member in np.flatnonzero(mask)], mask)


def _column(values: list[Any], mask: NDArray[np.bool_]) -> Any:
    """The column of one name. `values` are those of the members in `mask`; the others get a blank value."""
    first, k = values[0], len(mask)
    if len(set(map(type, values))) > 1:
        return _object_column(values, mask)  # 1 beside 0.5: a column of either type would change the other
    if isinstance(first, dict) and all(isinstance(key, str) and key[:1] != "_" for value in values for key in value):
        filled = iter(values)
        return pack([next(filled) if present else {} for present in mask])
    if type(first) is int and not all(-(2**63) <= value < 2**63 for value in values):
        return _object_column(values, mask)
    if type(first) in (int, float, bool) or isinstance(first, np.number):
        column = np.zeros(k, dtype=type(first))
    elif isinstance(first, np.ndarray) and all((v.dtype, v.shape) == (first.dtype, first.shape) for v in values):
        column = np.zeros((k, *first.shape), dtype=first.dtype)
    else:
        return _object_column(values, mask)
    column[mask] = values
    return column


def _object_column(values: list[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """The column of any objects: `values` at the members in `mask`, None at the others."""
    column = np.full(len(mask), None, dtype=object)
    for i, value in zip(np.flatnonzero(mask), values, strict=True):  # one by one, because a tuple is one value
        column[i] = value
    return column
