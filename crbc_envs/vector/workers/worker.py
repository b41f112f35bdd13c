"""What a worker is to those who ask it: requests in, answers out, or `WorkerLost`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from crbc_envs.core import Members, Outcome
from crbc_envs.vector.members import make_members

CLOSE_PATIENCE = 5.0
"""Seconds a worker has to close its environments before it is killed."""

Request = tuple[int, str, tuple[Any, ...]]
"""A number, which the answer repeats, what to do, and with which arguments."""

REPLAY = "replay "
"""Before "reset" or "step": it was done before, and only the anchors are wanted again; frames are large."""


class WorkerError(RuntimeError):
    """Members that cannot be played on: their workers are lost again and again, or replaying them led
    elsewhere. The message says which member, where, why, and how to go on."""


class WorkerLost(Exception):
    """A worker will not answer: it died, was stopped, hangs, or its environment raised (`trace`)."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(f"{reason}\n{trace}" if trace else reason)
        self.reason = reason


class Worker(Protocol):
    """A `Host` somewhere else."""

    starting: float
    """Seconds it may take to come up, which do not count as hanging."""

    def send(self, request: Request) -> None:
        """Hand over a request. Raises `WorkerLost`."""

    def receive(self, timeout: float) -> tuple[int, Any]:
        """The number of a request and its result. Raises `WorkerLost`, after `timeout` seconds at most."""

    def close(self) -> None:
        """Tell it to close its environments and go, without waiting for it."""

    def kill(self, patience: float = 0.0) -> None:
        """See it gone: by itself within `patience` seconds, or else by force."""


class Host:
    """What a worker runs: the members of its share, and the answers to requests about them."""

    def __init__(self) -> None:
        self.members: Members | None = None

    def answer(self, number: int, what: str, arguments: tuple[Any, ...]) -> tuple[int, Any]:
        if what == "make":
            self.members = make_members(*arguments)
            return number, None
        replay, what = what.startswith(REPLAY), what.removeprefix(REPLAY)
        assert what in ("reset", "step", "render")
        result = getattr(self.members, what)(*arguments)
        return number, _only_anchors(result) if replay else result

    def close(self) -> None:
        if self.members is not None:
            self.members.close()


def _only_anchors(outcome: Outcome) -> Outcome:
    anchors = {name: outcome.infos[name] for name in ("anchor", "_anchor")}
    return replace(outcome, observations=[None] * len(outcome.rewards), infos=anchors)
