"""Asks a model for many replies at once: behind a server, with its faults, or in this process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from operator import itemgetter
from typing import Protocol

from crbc_envs.prompts import Prompt
from crbc_lab.agents.config import AgentsConfig, LimitsSection
from crbc_lab.agents.ledger import Answer, estimate
from crbc_rl.policies.api import Policy, Queue
from crbc_rl.policies.chat import MAX_PAUSE, POLL_SECONDS, ChatPolicy, Completion, Fault, Session
from crbc_rl.rollout.collect import queue_of

WRONG_SERVER = frozenset({"401", "402", "403", "404", "405"})
"""Statuses that every further request would get too."""


class Line(Protocol):
    """Takes questions at any time, and returns answers as they come."""

    @property
    def waiting(self) -> int: ...

    def ask(self, slot: int, prompt: Prompt, seed: int, seconds: float) -> None:
        """Ask for the reply to a prompt, which may take so many seconds with all repetitions. `slot` identifies it."""

    def ready(self) -> list[tuple[int, Answer]]:
        """Wait for a while, and return the answers that have come with their slots."""
        ...


@contextmanager
def line_to(model: ChatPolicy | Policy, config: AgentsConfig, answered: bool) -> Iterator[Line]:
    """A line to a model, which may have `answered` before. Leaving the context cancels what is asked."""
    sampling = config.model.temperature, config.model.max_tokens
    if isinstance(model, ChatPolicy):
        with model.session() as opened:
            yield ServerLine(model, opened, sampling, config.limits, answered)
    else:
        with queue_of(model, *sampling) as queue:
            yield LocalLine(queue)


class ServerLine:
    """Requests to a server. A call is repeated after a fault, up to its deadline, and then has failed.

    An answer that is no chat completion is a fault like others here, since a busy server's proxy may send it. Raises
    `ConfigError` where the server refuses every request: the address, the model or the key is wrong, or a field while
    nothing has been answered yet.
    """

    def __init__(
        self,
        policy: ChatPolicy,
        opened: Session,
        sampling: tuple[float, int],
        limits: LimitsSection,
        answered: bool,
    ) -> None:
        self.policy, self.opened, self.sampling, self.limits = policy, opened, sampling, limits
        self.answered = answered
        self._asked: dict[Future[Answer], int] = {}
        self._error: BaseException | None = None

    @property
    def waiting(self) -> int:
        return len(self._asked) + (self._error is not None)

    def ask(self, slot: int, prompt: Prompt, seed: int, seconds: float) -> None:
        self._asked[self.opened.portal.start_task_soon(self._answer, prompt, seed, seconds)] = slot

    def ready(self) -> list[tuple[int, Answer]]:
        arrived, _ = wait(self._asked, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        answers = []
        for future in arrived:
            slot = self._asked.pop(future)
            if (error := future.exception()) is None:
                answers.append((slot, future.result()))
            else:
                self._error = error
        if self._error is not None and not answers:  # answers are paid for, and come first
            raise self._error
        return sorted(answers, key=itemgetter(0))

    async def _answer(self, prompt: Prompt, seed: int, seconds: float) -> Answer:
        begun, faults, problem = time.monotonic(), Counter[str](), ""
        body = self.policy.body(prompt, seed, *self.sampling)
        for tried in range(self.limits.retries + 1):
            left = begun + seconds - time.monotonic()
            if left <= 0:
                problem = f"no answer within {seconds:g} s; {problem or 'no time was left'}"
                break
            try:
                completion = await self.policy.attempt(self.opened.client, body, min(self.limits.attempt_seconds, left))
            except Fault as fault:
                faults[fault.kind] += 1
                problem = str(fault)
                if fault.kind in WRONG_SERVER or (self._refused(fault) and not self.answered):
                    raise self.policy.error(problem) from fault
                if self._refused(fault):
                    break
                pause = min(fault.pause or self.limits.pause * 2**tried, MAX_PAUSE)
                if tried < self.limits.retries:
                    await asyncio.sleep(max(0.0, min(pause, begun + seconds - time.monotonic())))
            else:
                self.answered = True
                return _answered(prompt, completion, faults, time.monotonic() - begun)
        failure = str(self.policy.error(problem))
        return Answer(faults=faults, failure=failure, seconds=time.monotonic() - begun)

    @staticmethod
    def _refused(fault: Fault) -> bool:
        return fault.final and fault.kind != "garbage"


def _answered(prompt: Prompt, completion: Completion, faults: Counter[str], seconds: float) -> Answer:
    tokens_in, tokens_out = completion.usage or estimate(prompt, completion.text)
    counted, ended = completion.usage is not None, completion.finish_reason
    return Answer(completion.text, tokens_in, tokens_out, counted, faults, seconds=seconds, finish_reason=ended)


class LocalLine:
    """A policy of this process, whose prompts are generated together. It has no faults, and counts its tokens."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    @property
    def waiting(self) -> int:
        return self.queue.waiting

    def ask(self, slot: int, prompt: Prompt, seed: int, seconds: float) -> None:
        self.queue.ask(slot, prompt, seed)

    def ready(self) -> list[tuple[int, Answer]]:
        return [
            (slot, Answer(turn.text, len(turn.prompt), len(turn.response), finish_reason=turn.finish_reason))
            for slot, turn in self.queue.ready()
        ]
