"""One thread for all that takes long: a slice of one batch of replies, then of the next, or of an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch

from crbc_lab.model_server.requests import Refused
from crbc_lab.model_server.rows import Row
from crbc_rl.batches import RolloutBatch, Turn, collate
from crbc_rl.policies.decoding import Decoding
from crbc_rl.policies.transformers import TransformersPolicy

MOST_WAITING, MOST_ROWS = 1_024, 64
"""Rows whose answer is not sent yet, and rows of a batch."""
MOST_TOKENS, SMALL = 1 << 18, 1 << 12
"""Positions of all batches together, for which the model's caches have room, and of a batch that finds room soon."""
READ_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 16}
"""Tokens of prompts that are read in one slice."""
SLICE_SECONDS = 0.02
"""A slice ends with the first step after it. Meanwhile others wait."""
PIECES, SCORED_AT_ONCE = 64, 1 << 23
"""Pieces of an answer that are written at once, and logits that are sorted at once."""
COLDEST = 1e-6
"""The temperature of "temperature": 0. The most probable token then is as good as certain."""


@dataclass(slots=True, eq=False)
class _Job:
    """Work in steps for `rows`, whose cache takes `size` positions at most. Rows that are `new` join at the next."""

    work: Iterator[None]
    new: list[Row]
    rows: list[Row] = field(default_factory=list)
    size: int = 0

    def slice(self) -> bool:
        """Go on for a while. Whether there is more to do."""
        end = time.monotonic() + SLICE_SECONDS
        return any(time.monotonic() > end for _ in self.work)

    def tell(self, error: BaseException | None) -> None:
        """Tell those who wait what the slice has done."""
        for row in self.rows:
            if row.awaited and error is not None:
                row.done.set_exception(error)
            elif row.awaited and row.whole:
                row.done.set_result(None)
            if row.changed is not None:
                row.changed.set()
        self.rows = [row for row in self.rows if row.awaited]


class Batcher:
    """Gives one thread the rows that wait. All but the work of jobs runs in the event loop."""

    def __init__(self, policy: TransformersPolicy) -> None:
        self.policy = policy
        self._held = 0
        self._turn = 0
        self._waiting: list[Row] = []
        self._jobs: list[_Job] = []
        self._thread = ThreadPoolExecutor(1, "model")
        self._loop: asyncio.Task[None] | None = None

    @contextmanager
    def asked(self, rows: Sequence[Row]) -> Iterator[None]:
        """Begin with rows, as soon as it is their turn. After the context they cost nothing more.

        The rows of a request have their turns one after another, and those of others come between them. Raises
        `Refused` with status 429 where too many wait.
        """
        if self._held + len(rows) > MOST_WAITING:
            raise Refused(f"more than {MOST_WAITING:,} replies are asked for at once; ask again later", None, 429)
        self._held += len(rows)
        turn = self._turn
        for row in rows:
            turn += row.size
            row.turn = turn
        self._waiting += rows
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._held -= len(rows)
            for row in rows:
                row.done.cancel()

    async def written(self, pieces: Iterator[str]) -> AsyncIterator[bytes]:
        """A text, some of its pieces at a time, which are made between two slices."""
        loop = asyncio.get_running_loop()
        while some := await loop.run_in_executor(self._thread, lambda: "".join(islice(pieces, PIECES))):
            yield some.encode()

    async def _run(self) -> None:
        """Slice after slice, until there is nothing to do: of the job with the smallest rows, and of each in turn."""
        smallest = True
        while self._jobs or self._waiting:
            self._take()
            if not self._jobs:
                continue
            weights = [max((row.size for row in job.rows), default=0).bit_length() for job in self._jobs]
            job = self._jobs[weights.index(min(weights)) if smallest else 0]
            smallest = not smallest or len(self._jobs) == 1
            self._jobs.remove(job)
            work = asyncio.get_running_loop().run_in_executor(self._thread, job.slice)
            await asyncio.wait([work])
            job.tell(error := work.exception())
            if error is None and work.result():
                self._jobs.append(job)
        self._loop = None

    def _take(self) -> None:
        """Give a job, one that goes on or a new one, the row whose turn it is and others that can be generated with it.
        It has half of the room that other jobs leave, so that the next one finds some. A request has one at a time."""
        self._waiting = sorted((row for row in self._waiting if row.awaited), key=lambda row: row.turn)
        begun = {id(row.order) for job in self._jobs for row in job.rows}
        held, most = sum(job.size for job in self._jobs), MOST_TOKENS
        at_once = READ_AT_ONCE.get(self.policy.device.type, MOST_TOKENS)

        def fits(job: _Job, row: Row) -> bool:
            rows = [*job.rows, row]
            return len(rows) <= MOST_ROWS and _size(rows) <= min(most, (MOST_TOKENS - held + job.size) // 2)

        running = [job for job in self._jobs if not job.new and any(row.most for row in job.rows)]
        if self.policy.prefixes is None:
            running = []  # a layer forgets tokens, so padding cannot be added
        job = _Job(self._work(new := list[Row]()), new)
        for row in self._waiting:
            if id(row.order) in begun or (job.new and row.together != job.rows[0].together):
                continue
            if job.new and (not fits(job, row) or _reads([*job.new, row]) > at_once):
                break
            if not job.new:
                job = next((old for old in running if old.rows[0].together == row.together and fits(old, row)), job)
                if not (job.rows or fits(job, row) or held <= SMALL):
                    most = SMALL  # it waits for room, and large ones wait behind it
                    continue
            job.new.append(row)
            job.rows.append(row)
        if job.new:
            self._turn = max(self._turn, job.new[0].turn)
            self._waiting = [row for row in self._waiting if row not in job.new]
            job.size = _size(job.rows)
            self._jobs += [job] if job.new is new else []

    def _work(self, new: list[Row]) -> Iterator[None]:
        """Generates the rows that come to be `new`, beside those that go on, and scores those that have ended."""
        asked, ended = new[0].order.fields, list[Row]()
        decoding = Decoding[Row](self.policy, max(asked.temperature, COLDEST), asked.top_p)
        scoring = self._scoring(ended)
        while new or ended or decoding.replies:
            ended += [row for row in new if not row.most]
            if rows := [row for row in new if row.most]:
                decoding.join(rows)
            new.clear()
            for row in decoding.replies:
                row.ended |= not row.awaited
            for row in (drawn := decoding.step()):
                row.write(self.policy.ends, self.policy.text)
            ended += [row for row in drawn if row.ended and not row.whole]
            next(scoring)
            yield

    def _scoring(self, ended: list[Row]) -> Iterator[None]:
        """Scores rows, also those that come later, one after another; without end."""
        while True:
            while ended:
                if ended[0].order.scored and ended[0].awaited:
                    yield from self._score(ended[0])
                ended.pop(0).whole = True
            yield

    def _score(self, row: Row) -> Iterator[None]:
        """Scored alone, so the rest of the batch makes no difference; at temperature 0 by the model as it is."""
        prompt = row.asked.prompt
        before = 1 if row.order.echo else len(prompt)
        prompt, tokens = prompt[:before], prompt[before:] + row.tokens
        alone = Turn(prompt, tokens, [0.0] * len(tokens), images=row.asked.images)
        heat, top = row.order.fields.temperature, min(row.order.top, self.policy.vocabulary)
        heat = max(heat, COLDEST) if heat else 1.0
        chosen: list[float] = []
        ids, values = np.empty((len(tokens), top), np.int32), np.empty((len(tokens), top), np.float32)
        if tokens:
            with torch.no_grad():
                batch = collate(RolloutBatch.of_turns([alone]), self.policy.pad).to(self.policy.device)
                logits = self.policy.at_responses(batch, lambda head, hidden: head(hidden))
            few = max(1, SCORED_AT_ONCE // self.policy.vocabulary)
            for start in range(0, len(tokens), few):
                yield
                scores = self.policy.scores(logits[start : start + few], heat)
                told = torch.tensor(tokens[start : start + few], device=scores.device)
                chosen += scores.gather(1, told[:, None])[:, 0].tolist()
                best = scores.topk(top, dim=-1)
                values[start : start + few] = best.values.cpu().numpy()
                ids[start : start + few] = best.indices.cpu().numpy()
        row.logprobs, row.best = chosen, (ids, values)


def _reads(rows: Sequence[Row]) -> int:
    """The tokens of prompts that a batch reads, equal ones once."""
    return len({id(row.asked) for row in rows}) * max(len(row.asked.prompt) for row in rows)


def _size(rows: Sequence[Row]) -> int:
    """The positions that a batch may come to take, padded on the left."""
    longest = max(len(row.asked.prompt) + len(row.tokens) for row in rows)
    return len(rows) * (longest + max(row.most - len(row.tokens) for row in rows))
