"""Plays a panel with an agent: episodes side by side, each counted once, whatever the server does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crbc_envs.chat import ChatEpisode
from crbc_envs.tasks import stream
from crbc_lab.agents.asking import Line
from crbc_lab.agents.config import AgentsConfig
from crbc_lab.agents.episode import Agent, Asking, Episode
from crbc_lab.agents.ledger import Answer, Ledger
from crbc_lab.agents.records import Records


@dataclass
class _Live:
    """An episode that is being played, and the name of the call that it waits for."""

    episode: Episode
    asking: Asking
    key: str = ""


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
        episode = live.episode
        while True:
            if answer is not None:
                episode.count(answer)
                if answer.failure:
                    return self._fail(slot, answer.failure)
            try:
                prompt = next(live.asking) if answer is None else live.asking.send(answer)
            except StopIteration:
                return self._end(slot)
            seed = stream("agents, reply", episode.seed, episode.task, episode.calls)
            live.key = self.ledger.key(prompt, seed, episode.calls)
            answer = self.ledger.known(live.key)
            if answer is not None:
                continue
            left = self.config.limits.episode_seconds - episode.seconds
            if left <= 0:
                return self._fail(slot, f"limits.episode_seconds: its calls took {episode.seconds:.0f} s")
            self.stopped = self.stopped or self.ledger.exhausted()
            if self.stopped:
                live.asking.close()
                del self._live[slot]
                return False
            line.ask(slot, prompt, seed, min(self.config.limits.call_seconds, left))
            return True

    def _fail(self, slot: int, reason: str) -> bool:
        self._live[slot].episode.fail(reason)
        self._live[slot].asking.close()
        return self._end(slot)

    def _end(self, slot: int) -> bool:
        episode = self._live.pop(slot).episode
        episode.settle()
        self.records.keep(episode)
        self.progress()
        return False
