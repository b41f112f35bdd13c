"""A share: the members that one worker plays, and all it takes to have another worker play on."""

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
"""How often in a row a call may cost a worker and be tried again."""

log = logging.getLogger("crbc_envs.vector.workers")


@dataclass(frozen=True, slots=True)
class Call:
    """A request about some members of a share, by their places in it; `columns` has a list of as many per argument."""

    what: str
    members: Sequence[int] = ()
    columns: tuple[Any, ...] = ()

    @property
    def of_each(self) -> bool:
        """Whether it asks its members for something each, and not all of the worker's at once."""
        return self.what.removeprefix(REPLAY) in ("reset", "step")

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.members, *self.columns) if self.of_each else self.columns

    def one_by_one(self) -> Iterator[Call]:
        for i, m in enumerate(self.members):
            yield Call(self.what, [m], tuple([column[i]] for column in self.columns))


@dataclass(slots=True)
class Script:
    """All that is needed to bring a member back: what it was told since its last reset, and where each
    step led."""

    task: int
    seed: int
    anchors: list[str]
    actions: list[str] = field(default_factory=list)


class Share:
    """The members of some whole groups, `first` onwards, and the worker that plays them for now.

    A new worker brings back a member when the member is next needed. One that has ended is not
    stepped any more, so it is replayed for `render()` alone.
    """

    def __init__(self, start: Callable[[], Worker], make: Call, first: int, size: int, timeout: float) -> None:
        self.start, self.make, self.timeout = start, make, timeout
        self.first, self.size = first, size
        self.name = f"worker of members {first} to {first + size - 1}"
        self.worker: Worker | None = None
        self.restarts = 0
        self.scripts: dict[int, Script] = {}
        self._behind: set[int] = set()  # members with a script that the worker has not played yet
        self._call = make
        self._busy = False  # with that call
        self._sent = False
        self._failures = 0  # of that call
        self._suspect: Call | None = None
        self._number = 0  # of the last request
        self._asked = make.what  # in it
        self._deadline = 0.0

    def ask(self, call: Call) -> None:
        """Send a call if the worker is in a state to take it at once; `answer` sees to everything else."""
        interrupted = self._busy and self.worker is not None
        self._call, self._busy, self._sent, self._failures, self._suspect = call, True, False, 0, None
        try:
            if interrupted:  # who knows how far it got
                raise WorkerLost("the call before was broken off")
            if call is self.make:
                self.worker = self.start()
            if self.worker is not None and not self._missing(call):
                self._send(call)
                self._sent = True
        except WorkerLost as lost:
            self._lose(lost)

    def answer(self) -> Any:
        """The result of the call that was asked; a worker lost over it is replaced and asked again.

        Raises `WorkerError` when that has failed `MAX_RESTARTS` times, or replaying leads elsewhere.
        """
        while True:
            try:
                result = self._receive() if self._sent else self._ask_again()
                break
            except WorkerLost as lost:
                self._sent = False
                self._lose(lost)
                if self._failures > MAX_RESTARTS:
                    raise WorkerError(self._explain(lost)) from lost
        self._note(self._call, result)
        self._busy = False
        return result

    def _ask_again(self) -> Any:
        self._suspect, one_by_one = None, self._failures > 1  # so that the third failure tells whose it is
        if self.worker is None:
            self.worker = self.start()
            made = self._request(self.make)
            if self._call is self.make:
                return made
        self._catch_up(self._missing(self._call), one_by_one)
        return self._request(self._call, one_by_one)

    def _catch_up(self, members: list[int], one_by_one: bool) -> None:
        """Replay members to where they stood, all of them side by side."""
        if not members:
            return
        scripts = [self.scripts[m] for m in members]
        columns = [script.task for script in scripts], [script.seed for script in scripts]
        self._compare(0, members, self._request(Call(REPLAY + "reset", members, columns), one_by_one))
        for step in range(max(len(script.actions) for script in scripts)):
            going = [m for m in members if len(self.scripts[m].actions) > step]
            call = Call(REPLAY + "step", going, ([self.scripts[m].actions[step] for m in going],))
            self._compare(step + 1, going, self._request(call, one_by_one))
        self._behind -= set(members)

    def _missing(self, call: Call) -> list[int]:
        """The members a call needs in place, and that are not."""
        if call.what == "reset":
            return []
        return sorted(self._behind if call.what == "render" else self._behind.intersection(call.members))

    def _compare(self, step: int, members: Sequence[int], outcome: Outcome) -> None:
        for m, anchor in zip(members, outcome.infos["anchor"].tolist(), strict=True):
            script = self.scripts[m]
            if anchor != script.anchors[step]:
                raise WorkerError(
                    f"member {self.first + m} (task {script.task}) was replayed after its worker was lost, and after "
                    f"step {step} its anchor is {anchor!r}, not {script.anchors[step]!r} as before: the environment "
                    "is no function of (task, seed, actions). check_anchor_env() shows where; reset() begins anew"
                )

    def _note(self, call: Call, outcome: Outcome) -> None:
        """Write down what a call did, for a replay."""
        if not call.of_each:
            return
        anchors = outcome.infos["anchor"].tolist()
        if call.what == "reset":
            for m, task, seed, anchor in zip(call.members, *call.columns, anchors, strict=True):
                self.scripts[m] = Script(task, seed, [anchor])
            self._behind.difference_update(call.members)
        else:
            for m, action, anchor in zip(call.members, *call.columns, anchors, strict=True):
                self.scripts[m].actions.append(action)
                self.scripts[m].anchors.append(anchor)

    def _request(self, call: Call, one_by_one: bool = False) -> Any:
        if not one_by_one or not call.of_each:
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
        self._number, self._asked = self._number + 1, call.what
        self._deadline = time.monotonic() + self.timeout + (self.worker.starting if call is self.make else 0.0)
        self.worker.send((self._number, call.what, call.arguments))

    def _receive(self) -> Any:
        assert self.worker is not None
        number, result = self.worker.receive(max(0.0, self._deadline - time.monotonic()))
        if number != self._number:
            raise WorkerLost(f"it answered request {number} when asked {self._number}")
        return result

    def _lose(self, lost: WorkerLost) -> None:
        self._failures += 1
        self.restarts += 1
        log.warning("%s lost at %s, to be replaced: %s", self.name, self._asked, lost.reason)
        self.kill()
        self._behind = set(self.scripts)

    def _explain(self, lost: WorkerLost) -> str:
        often = f"{self._failures} times in a row; the last time: {lost.reason}"
        if self._call is self.make:
            return (
                f"{self.name}: the environment could not be made {often}. A worker imports the module that defines "
                "it; what is defined nowhere but in a function, a notebook or another machine it cannot find"
            )
        single = self._suspect
        if single is None:
            return f"{self.name}: {self._call.what} failed {often}. reset() begins anew"
        m, asked = single.members[0], single.columns[0][0]
        where = f"member {self.first + m}, "
        if single.what.endswith("reset"):
            where += f"reset to task {asked}"
        else:
            script = self.scripts[m]
            where += f"task {script.task}, {len(script.actions)} steps played, action {asked[:80]!r}"
        return f"{where}: failed {often}. reset() begins anew; backend='sync' shows the fault where it happens"

    def kill(self, patience: float = 0.0) -> None:
        if self.worker is not None:
            self.worker.kill(0.0 if self._busy else patience)
            self.worker = None

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
