"""The supervisor of one worker: it replaces a lost worker and replays its members."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crbc_envs.core import Outcome
from crbc_envs.vector.members import merge
from crbc_envs.vector.workers.worker import REPLAY, Worker, WorkerError, WorkerLost

MAX_RESTARTS = 3
"""How often one call is retried with a new worker before it is given up."""

log = logging.getLogger("crbc_envs.vector.workers")


@dataclass(frozen=True, slots=True)
class Call:
    """A method call on some members, given by their index within the worker.

    `columns` has one list per argument, with one value per member.
    """

    method: str
    members: Sequence[int] = ()
    columns: tuple[Any, ...] = ()

    @property
    def per_member(self) -> bool:
        """Whether the call names its members. The others concern the whole worker."""
        return self.method.removeprefix(REPLAY) in ("reset", "step")

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.members, *self.columns) if self.per_member else self.columns

    def one_by_one(self) -> Iterator[Call]:
        for i, m in enumerate(self.members):
            yield Call(self.method, [m], tuple([column[i]] for column in self.columns))


@dataclass(slots=True)
class History:
    """What is needed to replay a member: the arguments of its last reset, and its actions since.

    The arguments are its task, its seed and, if copies differ in it, that of its noise. `anchors` has the anchor
    after the reset and after each action, to check the replay.
    """

    begun: tuple[int, ...]
    anchors: list[str]
    actions: list[str] = field(default_factory=list)

    @property
    def task(self) -> int:
        return self.begun[0]


class Supervisor:
    """One worker and its members: `size` of them, from member `first` on. They form whole groups.

    A lost worker is replaced. The new worker replays a member when a call next needs it. A member that has
    ended is never stepped again, so only `render()` needs its replay.
    """

    def __init__(self, start: Callable[[], Worker], make: Call, first: int, size: int, timeout: float) -> None:
        self.start, self.make, self.timeout = start, make, timeout
        self.first, self.size = first, size
        self.name = f"worker of members {first} to {first + size - 1}"
        self.worker: Worker | None = None
        self.restarts = 0
        self.histories: dict[int, History] = {}
        self._to_replay: set[int] = set()  # members with a history that this worker has not replayed yet
        self._call = make
        self._pending = False  # the call has no result yet
        self._sent = False  # the call was sent, and its answer is outstanding
        self._failures = 0  # of the call
        self._suspect: Call | None = None  # the single-member call in progress: if it fails, its member is to blame
        self._number = 0  # of the last request
        self._method = make.method  # of the last request
        self._deadline = 0.0  # of the last request

    def submit(self, call: Call) -> None:
        """Start a call. It is sent at once if the worker is ready; otherwise `result` sends it."""
        interrupted = self._pending and self.worker is not None
        self._call, self._pending, self._sent, self._failures, self._suspect = call, True, False, 0, None
        try:
            if interrupted:  # nobody knows how much of that call the worker has executed
                raise WorkerLost("the previous call was interrupted")
            if call is self.make:
                self.worker = self.start()
            if self.worker is not None and not self._needs_replay(call):
                self._send(call)
                self._sent = True
        except WorkerLost as lost:
            self._drop_worker(lost)

    def result(self) -> Any:
        """Wait for the result of the submitted call. If the worker is lost, retry with a new one.

        Raises `WorkerError` after `MAX_RESTARTS` failed retries, and if a replay reaches another anchor.
        """
        while True:
            try:
                result = self._receive() if self._sent else self._retry()
                break
            except WorkerLost as lost:
                self._sent = False
                self._drop_worker(lost)
                if self._failures > MAX_RESTARTS:
                    raise WorkerError(self._explain(lost)) from lost
        self._record(self._call, result)
        self._pending = False
        return result

    def _retry(self) -> Any:
        # After two failures, members run one by one: the next failure then names the member.
        self._suspect, one_by_one = None, self._failures > 1
        if self.worker is None:
            self.worker = self.start()
            made = self._request(self.make)
            if self._call is self.make:
                return made
        self._replay(self._needs_replay(self._call), one_by_one)
        return self._request(self._call, one_by_one)

    def _replay(self, members: list[int], one_by_one: bool) -> None:
        """Replay the histories of some members, step by step and all members together."""
        if not members:
            return
        histories = [self.histories[m] for m in members]
        columns = tuple(map(list, zip(*(history.begun for history in histories), strict=True)))
        self._compare(0, members, self._request(Call(REPLAY + "reset", members, columns), one_by_one))
        for step in range(max(len(history.actions) for history in histories)):
            active = [m for m in members if len(self.histories[m].actions) > step]
            call = Call(REPLAY + "step", active, ([self.histories[m].actions[step] for m in active],))
            self._compare(step + 1, active, self._request(call, one_by_one))
        self._to_replay -= set(members)

    def _needs_replay(self, call: Call) -> list[int]:
        """The members that must be replayed before this call."""
        if call.method == "reset":
            return []
        return sorted(self._to_replay if call.method == "render" else self._to_replay.intersection(call.members))

    def _compare(self, step: int, members: Sequence[int], outcome: Outcome) -> None:
        """Raise `WorkerError` if a replayed member is not at the anchor of its history."""
        for m, anchor in zip(members, outcome.infos["anchor"].tolist(), strict=True):
            history = self.histories[m]
            if anchor != history.anchors[step]:
                raise WorkerError(
                    f"member {self.first + m} (task {history.task}) was replayed because its worker was lost. After "
                    f"step {step} its anchor is {anchor!r}; it was {history.anchors[step]!r}. The environment is not a "
                    "function of (task, seed, actions). check_anchor_env() finds the cause; reset() starts again"
                )

    def _record(self, call: Call, outcome: Outcome) -> None:
        """Add a finished call to the histories of its members."""
        if not call.per_member:
            return
        anchors = outcome.infos["anchor"].tolist()
        if call.method == "reset":
            for m, anchor, *begun in zip(call.members, anchors, *call.columns, strict=True):
                self.histories[m] = History(tuple(begun), [anchor])
            self._to_replay.difference_update(call.members)
        else:
            for m, action, anchor in zip(call.members, *call.columns, anchors, strict=True):
                self.histories[m].actions.append(action)
                self.histories[m].anchors.append(anchor)

    def _request(self, call: Call, one_by_one: bool = False) -> Any:
        """Send a call and wait for its result; with `one_by_one`, a separate request for each member."""
        if not one_by_one or not call.per_member:
            self._send(call)
            return self._receive()
        parts = []
        for i, single in enumerate(call.one_by_one()):
            self._suspect = single
            parts.append(([i], self._request(single)))
        self._suspect = None
        return merge(parts, len(parts))

    def _send(self, call: Call) -> None:
        assert self.worker is not None
        self._number, self._method = self._number + 1, call.method
        self._deadline = time.monotonic() + self.timeout + (self.worker.startup_time if call is self.make else 0.0)
        self.worker.send((self._number, call.method, call.arguments))

    def _receive(self) -> Any:
        assert self.worker is not None
        number, result = self.worker.receive(max(0.0, self._deadline - time.monotonic()))
        if number != self._number:
            raise WorkerLost(f"it answered request {number}, but request {self._number} was expected")
        return result

    def _drop_worker(self, lost: WorkerLost) -> None:
        """Kill a lost worker. Its members must be replayed."""
        self._failures += 1
        self.restarts += 1
        log.warning("%s: lost during %s, a new worker replaces it: %s", self.name, self._method, lost.reason)
        self.kill()
        self._to_replay = set(self.histories)

    def _explain(self, lost: WorkerLost) -> str:
        """The message of the `WorkerError`: where it failed, why, and what to do."""
        times = f"{self._failures} times in a row; the last time: {lost.reason}"
        if self._call is self.make:
            return (
                f"{self.name}: the environment could not be made {times}. A worker must import the module that "
                "defines it. Put the class in a module that every worker can import, not in a function or a notebook"
            )
        single = self._suspect
        if single is None:
            return f"{self.name}: {self._call.method} failed {times}. reset() starts again"
        m, argument = single.members[0], single.columns[0][0]
        where = f"member {self.first + m}, "
        if single.method.endswith("reset"):
            where += f"reset to task {argument}"
        else:
            history = self.histories[m]
            where += f"task {history.task}, {len(history.actions)} steps played, action {argument[:80]!r}"
        return f"{where}: failed {times}. reset() starts again; backend='sync' shows the error where it occurs"

    def kill(self, grace: float = 0.0) -> None:
        if self.worker is not None:
            self.worker.kill(0.0 if self._pending else grace)
            self.worker = None

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
