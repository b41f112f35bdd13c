"""OpenEnv: an environment of ours as one of theirs, with its Task API."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import cache
from threading import RLock
from typing import Any

from crbc_rl.adapters.openenv import CrbcAction, CrbcObservation, CrbcTask  # first: it checks OpenEnv's version

# isort: split
import numpy as np
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata, State

from crbc_envs import ChatEpisode
from crbc_rl.version import __version__

MOST_TASKS = 100
"""Tasks of one answer."""

_LOCK = RLock()
"""Guards every environment of the process: they share caches, which are not thread-safe."""


class CrbcEnvironment(Environment[CrbcAction, CrbcObservation, State]):
    """The environment `env_id`. `kwargs` are those of `ChatEpisode`, without a split.

    What a client may have got wrong is a `ValueError` or an `IndexError` of one line.
    """

    SUPPORTS_CONCURRENT_SESSIONS = REQUIRES_SINGLE_THREAD_EXECUTOR = True
    # One thread for all sessions: a step is short, and Python's threads would take turns anyway.
    state = State()
    _now: ChatEpisode | None

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        super().__init__()
        self._open = opened = ExitStack()
        self.episode = cache(lambda split: opened.enter_context(closing(ChatEpisode(env_id, split=split, **kwargs))))
        self._name, self._now, self._rng = env_id, None, np.random.default_rng()

    def list_splits(self) -> list[str]:
        return ["train", "validation", "test"]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """The first `MOST_TASKS` of them."""
        return self.get_task_range(split, 0, MOST_TASKS)

    def num_tasks(self, split: str) -> int:
        with _LOCK:
            return len(self.episode(split).env.panel)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        with _LOCK:
            task = self.episode(split).env.panel[index]
            return {"id": task.id, "index": index, "text": task.text}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Raises `ValueError` for more than `MOST_TASKS` of them."""
        chosen = range(self.num_tasks(split))[start:stop]
        if len(chosen) > MOST_TASKS:
            raise ValueError(f"task_range: {len(chosen)} tasks; ask for at most {MOST_TASKS} at a time")
        return [self.get_task(split, index) for index in chosen]

    def reset(self, seed: int | None = None, episode_id: str | None = None, **task: Any) -> CrbcObservation:
        """Begin the episode that a `CrbcTask` says."""
        asked = CrbcTask.read({**task, "seed": seed, "episode_id": episode_id})
        if seed is None:
            seed = 0 if asked.index is not None else int(self._rng.integers(2**31))
        self._now, self.state = None, State(episode_id=episode_id)
        with _LOCK:
            episode = self.episode(asked.split)
            messages = episode.begin(asked.index, seed, group=asked.group, rollout=asked.rollout)
        self._now = episode
        return CrbcObservation.of(episode, messages)

    def step(self, action: CrbcAction, timeout_s: float | None = None, **_: Any) -> CrbcObservation:
        """Execute a reply. `timeout_s` does nothing: a step is short."""
        if self._now is None or self._now.over:
            raise ValueError("step: no episode is going on; call reset first (a lost session has lost its episode)")
        with _LOCK:
            if action.cut:
                self._now.cut()
                return CrbcObservation.of(self._now, None).model_copy(update={"reward": 0.0})  # told with its step
            messages = self._now.reply(action.text, action.finish_reason)
        self.state.step_count += 1
        return CrbcObservation.of(self._now, messages)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self._name, description="anchor-aware, with step credit", version=__version__)

    def close(self) -> None:
        """Close the environments of all splits."""
        self._now = None
        with _LOCK:
            self._open.close()
