"""Members that run in workers. Each worker holds whole groups; a lost worker is replaced and its members are replayed.

A member is a function of (task, seed, noise, actions). A new worker that replays them therefore reaches the
same state. Each anchor of the replay is compared with the recorded one, which proves it. There are two kinds
of `Worker`: `process` for processes of this machine, `ray` for Ray actors on one or more machines.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from crbc_envs.core import Members, Outcome
from crbc_envs.vector.members import importable_spec, make_members, merge
from crbc_envs.vector.workers.main_script import main_script
from crbc_envs.vector.workers.supervisor import Call, Supervisor
from crbc_envs.vector.workers.worker import CLOSE_TIMEOUT, Worker, WorkerError

__all__ = ["BACKENDS", "SupervisedMembers", "WorkerError", "make_backend"]

BACKENDS = ("sync", "process", "ray")


class SupervisedMembers:
    """Members distributed over workers, which may fail at any time. The members of a group share a worker.

    `start()` starts a new worker. A worker that does not answer within `timeout` seconds counts as lost,
    like one that died.
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
        self.supervisors: list[Supervisor] = []
        self._supervisor_of: list[Supervisor] = []  # by member
        folders = [folder or os.getcwd() for folder in sys.path]
        for groups in np.array_split(np.arange(num_groups), min(num_workers, num_groups)):
            size = len(groups) * group_size
            make = Call("make", columns=(spec, env_kwargs, size, folders))
            self.supervisors.append(Supervisor(start, make, len(self._supervisor_of), size, timeout))
            self._supervisor_of += [self.supervisors[-1]] * size
        self._closed, self._owner = False, os.getpid()
        try:
            self._run([(supervisor, supervisor.make) for supervisor in self.supervisors])
        except WorkerError:
            self.close()
            raise

    @property
    def restarts(self) -> int:
        """The number of workers lost and replaced so far."""
        return sum(supervisor.restarts for supervisor in self.supervisors)

    def reset(
        self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int], noise: Sequence[int] | None = None
    ) -> Outcome:
        return self._call("reset", members, tasks, seeds, *([] if noise is None else [noise]))

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        return self._call("step", members, actions)

    def render(self) -> tuple[Any, ...]:
        parts = self._run([(supervisor, Call("render")) for supervisor in self.supervisors])
        return tuple(frame for part in parts for frame in part)

    def close(self) -> None:
        self._closed = True
        for supervisor in self.supervisors:
            supervisor.close()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for supervisor in self.supervisors:
            supervisor.kill(max(0.0, deadline - time.monotonic()))

    def _call(self, method: str, members: Sequence[int], *columns: Sequence[Any]) -> Outcome:
        """Call `method` on some members, by way of the supervisor of each. `columns` has one value per member."""
        places: dict[int, list[int]] = {}
        for place, m in enumerate(members):
            places.setdefault(self._supervisor_of[m].first, []).append(place)
        calls = []
        for first, chosen in places.items():
            part = tuple([column[i] for i in chosen] for column in columns)
            calls.append((self._supervisor_of[first], Call(method, [members[i] - first for i in chosen], part)))
        return merge(zip(places.values(), self._run(calls), strict=True), len(members))

    def _run(self, calls: Sequence[tuple[Supervisor, Call]]) -> list[Any]:
        """The result of each call. All calls are sent before the first wait, so workers run in parallel."""
        if self._closed:
            raise gymnasium.error.ClosedEnvironmentError("the environments are closed; make new ones")
        if os.getpid() != self._owner:
            raise gymnasium.error.ClosedEnvironmentError(
                f"the environments belong to process {self._owner}, which this one was forked from; make new ones"
            )
        for supervisor, call in calls:
            supervisor.submit(call)
        return [supervisor.result() for supervisor, _ in calls]


def make_backend(
    backend: str,
    env_id: str | EnvSpec,
    env_kwargs: dict[str, Any],
    num_groups: int,
    group_size: int,
    num_workers: int | None,
    timeout: float,
) -> Members:
    """Make `num_groups * group_size` members in this process ("sync"), in worker processes ("process") or in
    Ray actors ("ray"). The default is one worker per processor. There are never more workers than groups."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    workers = min(num_groups, os.cpu_count() or 1) if num_workers is None else num_workers
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"num_workers must be a positive integer or None, got {num_workers!r}")
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
    if backend == "sync":
        return make_members(env_id, env_kwargs, num_groups * group_size)
    spec = importable_spec(env_id)
    start: Callable[[], Worker]
    if backend == "process":
        from crbc_envs.vector.workers.process import ProcessWorker

        start = partial(ProcessWorker, timeout, main_script(spec, env_kwargs))
    else:
        from crbc_envs.vector.workers.ray import RayWorker

        start = RayWorker
    return SupervisedMembers(start, spec, env_kwargs, num_groups, group_size, workers, timeout)
