"""Generates the replies that wait together, in one thread, and scores given tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from crbc_lab.model_server.requests import Refused
from crbc_rl.batches import RolloutBatch, Turn, collate
from crbc_rl.policies.transformers import TransformersPolicy

MOST_WAITING = 1_024
"""Rows that wait or are generated."""
MOST_ROWS, MOST_TOKENS = 64, 1 << 18
"""Rows of a batch, and the positions of all its rows together, for which the model's cache has room."""
COLDEST = 1e-6
"""The temperature of "temperature": 0. The most probable token then is as good as certain."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The log-probability of each of some tokens, and beside each the most probable (token id, log-probability)."""

    logprobs: list[float]
    top: list[list[tuple[int, float]]]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One reply that is asked for. With `scored`, tokens are scored after it: those of the reply, with `echo` those
    of the prompt before them, and beside each the `top` most probable."""

    asked: Turn
    seed: int
    temperature: float
    most: int
    scored: bool = False
    echo: bool = False
    top: int = 0
    done: asyncio.Future[tuple[Turn, Scores | None]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def together(self) -> tuple[float, int]:
        """Rows of one batch have this in common."""
        return self.temperature, self.most

    @property
    def awaited(self) -> bool:
        return not self.done.done()


class Batcher:
    """Gives one thread the rows that wait, a batch at a time. All but `_work` runs in the event loop."""

    def __init__(self, policy: TransformersPolicy) -> None:
        self.policy = policy
        self.batches = 0
        """Batches so far."""
        self._waiting: list[Row] = []
        self._running: list[Row] = []
        self._thread = ThreadPoolExecutor(1, "model")
        self._loop: asyncio.Task[None] | None = None

    async def replies(self, rows: Sequence[Row]) -> list[tuple[Turn, Scores | None]]:
        """The replies to all rows, in order. A row whose caller is cancelled costs nothing more.

        Raises `Refused` with status 429 where too many wait.
        """
        if sum(row.awaited for row in (*self._waiting, *self._running)) + len(rows) > MOST_WAITING:
            raise Refused(f"more than {MOST_WAITING:,} replies are asked for at once; ask again later", None, 429)
        self._waiting += rows
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        try:
            return await asyncio.gather(*(row.done for row in rows))
        finally:
            for row in rows:
                row.done.cancel()

    async def _run(self) -> None:
        """Batch after batch, until no row waits."""
        while self._waiting:
            batch = self._running = self._take()
            if not batch:
                continue
            self.batches += 1
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._work, batch)
            await asyncio.wait([work])
            for place, row in enumerate(batch):
                if not row.awaited:
                    continue
                if error := work.exception():
                    row.done.set_exception(error)
                else:
                    row.done.set_result(work.result()[place])
        self._running, self._loop = [], None

    def _take(self) -> list[Row]:
        """The first row that waits, and others that can be generated with it."""
        waiting = [row for row in self._waiting if row.awaited]
        batch: list[Row] = []
        longest = 0
        for row in waiting:
            if row.together != waiting[0].together or len(batch) == MOST_ROWS:
                continue
            longest = max(longest, len(row.asked.prompt) + row.most)
            if batch and longest * (len(batch) + 1) > MOST_TOKENS:
                break
            batch.append(row)
        taken = set(map(id, batch))
        self._waiting = [row for row in waiting if id(row) not in taken]
        return batch

    def _work(self, batch: Sequence[Row]) -> list[tuple[Turn, Scores | None]]:
        temperature, most = batch[0].together
        turns = [row.asked for row in batch]
        if most:
            seeds = [row.seed for row in batch]
            turns = self.policy.sample(turns, seeds, max(temperature, COLDEST), most, lambda i: batch[i].awaited)
        return [
            (turn, self._score(row, turn) if row.scored and row.awaited else None)
            for row, turn in zip(batch, turns, strict=True)
        ]

    @torch.no_grad()
    def _score(self, row: Row, turn: Turn) -> Scores:
        """Scored alone, so the rest of the batch makes no difference; at temperature 0 by the model as it is."""
        before = 1 if row.echo else len(turn.prompt)
        prompt, tokens = turn.prompt[:before], turn.prompt[before:] + turn.response
        if not tokens:
            return Scores([], [])
        alone = Turn(prompt, tokens, [0.0] * len(tokens), images=turn.images)
        logits = self.policy.logits(collate(RolloutBatch.of_turns([alone]), self.policy.pad).to(self.policy.device))
        scores = self.policy.scores(logits[0, :-1], max(row.temperature, COLDEST) if row.temperature else 1.0)
        chosen = scores.gather(1, torch.tensor(tokens, device=scores.device)[:, None])[:, 0]
        values, ids = scores.topk(min(row.top, self.policy.vocabulary), dim=-1)
        top = [list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), values.tolist(), strict=True)]
        return Scores(chosen.tolist(), top)
