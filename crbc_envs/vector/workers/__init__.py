"""Members in workers: whole groups to a worker, few workers, and a lost one made good by replay.

A member is a function of (task, seed, actions). So whatever becomes of a worker, another one that is
told the same stands where it stood, and the anchors on the way, compared one by one, prove it. How a
worker is reached is a `Worker`: `process` for this machine, `ray` for several.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from crbc_envs.core import Members, Outcome
from crbc_envs.vector.members import importable, make_members, merge
from crbc_envs.vector.workers.supervisor import Call, Share
from crbc_envs.vector.workers.worker import CLOSE_PATIENCE, Worker, WorkerError

__all__ = ["BACKENDS", "SupervisedMembers", "WorkerError", "make_backend"]

BACKENDS = ("sync", "process", "ray")


class SupervisedMembers:
    """Members spread over workers that may be lost at any time; those of a group share a worker.

    `start()` gives a new worker. A worker that does not answer within `timeout` seconds is as lost as
    a dead one.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        spec: EnvSpec,
        env_kwargs: dict[str, Any],
        num_groups: int,
        group_size: int,
        num_workers: int,
        timeout: float,
    ) -> None:
        self.shares: list[Share] = []
        self._share_of: list[Share] = []
        for groups in np.array_split(np.arange(num_groups), min(num_workers, num_groups)):
            size = len(groups) * group_size
            make = Call("make", columns=(spec, env_kwargs, size))
            self.shares.append(Share(start, make, len(self._share_of), size, timeout))
            self._share_of += [self.shares[-1]] * size
        self._closed = False
        try:
            self._ask([(share, share.make) for share in self.shares])
        except WorkerError:
            self.close()
            raise

    @property
    def restarts(self) -> int:
        """How many workers were lost and replaced so far."""
        return sum(share.restarts for share in self.shares)

    def reset(self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int]) -> Outcome:
        return self._play("reset", members, tasks, seeds)

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        return self._play("step", members, actions)

    def render(self) -> tuple[Any, ...]:
        return tuple(frame for part in self._ask([(share, Call("render")) for share in self.shares]) for frame in part)

    def close(self) -> None:
        self._closed = True
        for share in self.shares:
            share.close()
        deadline = time.monotonic() + CLOSE_PATIENCE
        for share in self.shares:
            share.kill(max(0.0, deadline - time.monotonic()))

    def _play(self, what: str, members: Sequence[int], *columns: Sequence[Any]) -> Outcome:
        places: dict[int, list[int]] = {}
        for place, m in enumerate(members):
            places.setdefault(self._share_of[m].first, []).append(place)
        calls = []
        for first, mine in places.items():
            chosen = tuple([column[i] for i in mine] for column in columns)
            calls.append((self._share_of[first], Call(what, [members[i] - first for i in mine], chosen)))
        return merge(zip(places.values(), self._ask(calls), strict=True), len(members))

    def _ask(self, calls: Sequence[tuple[Share, Call]]) -> list[Any]:
        """The results of a call each. All are sent before the first is waited for: workers run side by side."""
        if self._closed:
            raise gymnasium.error.ClosedEnvironmentError("the environments are closed; make new ones")
        for share, call in calls:
            share.ask(call)
        return [share.answer() for share, _ in calls]


def make_backend(
    backend: str,
    env_id: str,
    env_kwargs: dict[str, Any],
    num_groups: int,
    group_size: int,
    num_workers: int | None,
    timeout: float,
) -> Members:
    """The members of `num_groups * group_size` in this process ("sync"), in processes of this machine
    ("process") or in Ray actors ("ray"). By default there is a worker per processor, and never more than
    groups."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    workers = min(num_groups, os.cpu_count() or 1) if num_workers is None else num_workers
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"num_workers must be a positive integer or None, got {num_workers!r}")
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
    if backend == "sync":
        return make_members(env_id, env_kwargs, num_groups * group_size)
    start: Callable[[], Worker]
    if backend == "process":
        from crbc_envs.vector.workers.process import ProcessWorker

        start = partial(ProcessWorker, timeout)
    else:
        from crbc_envs.vector.workers.ray import RayWorker

        start = RayWorker
    return SupervisedMembers(start, importable(env_id), env_kwargs, num_groups, group_size, workers, timeout)
