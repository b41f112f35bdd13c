"""The worker interface. A worker receives requests and returns results, or raises `WorkerLost`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Protocol

from crbc_envs.core import Members, Outcome
from crbc_envs.vector.members import make_members

CLOSE_TIMEOUT = 5.0
"""Seconds a worker has to close its environments before it is killed."""

Request = tuple[int, str, tuple[Any, ...]]
"""The request number, the method name and its arguments. The answer repeats the number."""

REPLAY = "replay "
"""Prefix of "reset" and "step" during a replay. The answer then holds the anchors only, because frames are large."""


class WorkerError(RuntimeError):
    """Some members cannot go on: their worker failed too often, or their replay reached another anchor.

    The message names the member, the place and the cause, and says how to go on.
    """


class WorkerLost(Exception):
    """A worker will not answer: it died, was stopped, hangs, or its environment raised an error (`trace`)."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(f"{reason}\n{trace}" if trace else reason)
        self.reason = reason


class Worker(Protocol):
    """The handle of a `MemberServer` that runs in another process or actor."""

    startup_time: float
    """Seconds the worker may need to start. They are added to the timeout of its first request."""

    def send(self, request: Request) -> None:
        """Send a request. Raises `WorkerLost`."""

    def receive(self, timeout: float) -> tuple[int, Any]:
        """Return a request number and its result. Raises `WorkerLost`, after `timeout` seconds at most."""

    def close(self) -> None:
        """Tell the worker to close its environments and exit. Does not wait for it."""

    def kill(self, grace: float = 0.0) -> None:
        """Wait up to `grace` seconds for the worker to exit, then kill it."""


class MemberServer:
    """Runs inside a worker: it holds the worker's members and executes requests on them.

    "make" also brings the folders in which the caller finds modules. An actor on another machine, or one started
    before a folder was added, would not find the environment.
    """

    def __init__(self) -> None:
        self.members: Members | None = None

    def handle(self, number: int, method: str, arguments: tuple[Any, ...]) -> tuple[int, Any]:
        """Execute a request. Returns its number and its result."""
        if method == "make":
            *description, folders = arguments
            sys.path += [folder for folder in folders if folder not in sys.path]
            self.members = make_members(*description)
            return number, None
        replay, method = method.startswith(REPLAY), method.removeprefix(REPLAY)
        assert method in ("reset", "step", "render")
        result = getattr(self.members, method)(*arguments)
        return number, _only_anchors(result) if replay else result

    def close(self) -> None:
        if self.members is not None:
            self.members.close()


def _only_anchors(outcome: Outcome) -> Outcome:
    anchors = {name: outcome.infos[name] for name in ("anchor", "_anchor")}
    return replace(outcome, observations=[None] * len(outcome.rewards), infos=anchors)
