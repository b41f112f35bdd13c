"""Plays a panel with an agent: episodes side by side, each counted once, whatever the server does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crbc_envs.chat import ChatEpisode
from crbc_envs.prompts import Prompt
from crbc_envs.tasks import stream
from crbc_lab.agents.asking import Line, Question
from crbc_lab.agents.config import AgentsConfig
from crbc_lab.agents.episode import Agent, Asking, Episode
from crbc_lab.agents.ledger import Answer, Ledger
from crbc_lab.agents.records import Records


@dataclass
class _Live:
    """An episode that is being played, and what its calls have cost so far."""

    episode: Episode
    asking: Asking
    key: str = ""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


class Play:
    """One start of a run. `chats` are environments to play in, one for each episode that is played at a time.

    What an episode does is a function of its task, its seed and the model's replies; not of the episodes beside it.
    """

    def __init__(
        self,
        config: AgentsConfig,
        agent: Agent,
        chats: Sequence[ChatEpisode],
        ledger: Ledger,
        records: Records,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.config, self.agent, self.chats = config, agent, chats
        self.ledger, self.records, self.progress = ledger, records, progress
        self.stopped = ""
        """Why the run ended before its last episode; empty where it did not."""
        self._live: dict[int, _Live] = {}
        self._todo: deque[tuple[int, int]] = deque()

    def run(self, line: Line, todo: Sequence[tuple[int, int]]) -> None:
        """Play the episodes `todo`, (seed, task), until all are finished or the budget is spent.

        Once it is spent, nothing more is asked. What has been asked is waited for and kept, since it is paid.
        """
        self._todo = deque(todo)
        for slot in range(len(self.chats)):
            self._begin(line, slot)
        while line.waiting:
            for slot, answer in line.ready():
                live = self._live[slot]
                self.ledger.record(live.key, answer)
                if not self._hear(line, slot, answer):
                    self._begin(line, slot)

    def _begin(self, line: Line, slot: int) -> None:
        """Play the next episodes in this slot, up to the first call that must be asked."""
        while self._todo and not self.stopped:
            seed, task = self._todo.popleft()
            env_seed = stream("agents, environment", seed, task)
            episode = Episode(self.chats[slot], task, seed, env_seed)
            self._live[slot] = _Live(episode, self.agent(episode))
            if self._hear(line, slot, None):
                return

    def _hear(self, line: Line, slot: int, answer: Answer | None) -> bool:
        """Tell the agent of this slot an answer, and go on to the next call that must be asked.

        Returns False where its episode has ended, or cannot go on.
        """
        live = self._live[slot]
        while True:
            if answer is not None and answer.failure:
                self._count(live, answer)
                live.episode.fail(answer.failure)
                live.asking.close()
                self._end(slot)
                return False
            try:
                prompt = next(live.asking) if answer is None else self._send(live, answer)
            except StopIteration:
                self._end(slot)
                return False
            seed = stream("agents, reply", live.episode.seed, live.episode.task, live.calls)
            live.key = self.ledger.key(prompt, seed, live.calls)
            answer = self.ledger.known(live.key)
            if answer is not None:
                continue
            left = self.config.limits.episode_seconds - live.seconds
            if left <= 0:
                live.episode.fail(f"limits.episode_seconds: its calls took {live.seconds:.0f} s")
                live.asking.close()
                self._end(slot)
                return False
            self.stopped = self.stopped or self.ledger.exhausted()
            if self.stopped:
                live.asking.close()
                del self._live[slot]
                return False
            line.ask(slot, Question(prompt, seed, min(self.config.limits.call_seconds, left)))
            return True

    def _send(self, live: _Live, answer: Answer) -> Prompt:
        self._count(live, answer)
        return live.asking.send(answer.text)

    @staticmethod
    def _count(live: _Live, answer: Answer) -> None:
        live.calls += 1
        live.tokens_in += answer.tokens_in
        live.tokens_out += answer.tokens_out
        live.seconds += answer.seconds

    def _end(self, slot: int) -> None:
        live = self._live.pop(slot)
        live.episode.settle()
        self.records.keep(live.episode, live.calls, live.tokens_in, live.tokens_out)
        self.progress()
