"""OpenEnv: an environment with its Task API, as a server of concurrent sessions and a client.

    crbc serve openenv CRBC-ALFWorld-v0 --port 8000

    with CrbcClient(base_url="http://127.0.0.1:8000").sync() as client:
        seen = client.reset(split="test", index=3, seed=7).observation
        while not seen.done:
            seen = client.step(CrbcAction(text=model(seen.messages))).observation

TRL, verifiers and others read OpenEnv's environments. A session is one WebSocket and one episode at a time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server import http_server
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
from pydantic import Field

from crbc_envs import ChatEpisode

LONGEST_REPLY = 100_000
"""Characters of a reply."""


class CrbcAction(Action):
    text: str = Field(max_length=LONGEST_REPLY)
    """The model's whole reply."""


class CrbcObservation(Observation):
    """`messages` are the next prompt, empty at the end; `record` is `ChatEpisode.record`."""

    messages: list[dict[str, Any]] = []
    record: dict[str, Any] = {}
    anchor: str = ""
    admissible_actions: list[str] = []
    task_id: str = ""


class CrbcEnvironment(Environment[CrbcAction, CrbcObservation, State]):
    """The environment `env_id`; `kwargs` are those of `ChatEpisode`, without a split."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        super().__init__()
        self.make = partial(ChatEpisode, env_id, **kwargs)
        self.episodes: dict[str, ChatEpisode] = {}
        self._state = State()

    def list_splits(self) -> list[str]:
        return ["train", "validation", "test"]

    def num_tasks(self, split: str) -> int:
        return len(self.episode(split).env.panel)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        task = self.episode(split).env.panel[index]
        return {"id": task.id, "index": index, "text": task.text}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split, 0, 100)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        chosen = range(*slice(start, stop).indices(self.num_tasks(split)))[:1000]
        return [self.get_task(split, index) for index in chosen]

    def episode(self, split: str) -> ChatEpisode:
        if split not in self.episodes:
            self.episodes[split] = self.make(split=split)
        return self.episodes[split]

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> CrbcObservation:
        """`split`, `index`, `group` and `rollout` may be given too."""
        self.now = self.episode(kwargs.get("split", "train"))
        ids = {"group": kwargs.get("group"), "rollout": kwargs.get("rollout", 0)}
        self._state = State(episode_id=episode_id)
        return self.seen(self.now.begin(kwargs.get("index"), seed or 0, **ids))

    def step(self, action: CrbcAction, timeout_s: Any = None, **kwargs: Any) -> CrbcObservation:
        self._state.step_count += 1
        return self.seen(self.now.reply(action.text))

    def seen(self, messages: list[dict[str, Any]] | None) -> CrbcObservation:
        info, record = self.now.info, self.now.record
        told = {name: info[name] for name in ("anchor", "admissible_actions", "task_id")}
        reward = record.get("reward")
        return CrbcObservation(messages=messages or [], record=record, done=messages is None, reward=reward, **told)

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        for episode in self.episodes.values():
            episode.close()


class CrbcClient(EnvClient[CrbcAction, CrbcObservation, State]):
    """A session on a server; `.sync()` for code without asyncio."""

    def _step_payload(self, action: CrbcAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CrbcObservation]:
        told = {name: payload.get(name) for name in ("reward", "done")}
        return StepResult(observation=CrbcObservation(**{**payload["observation"], **told}), **told)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


class IdleLimit:
    """Ends a WebSocket that sends nothing for `seconds`, which frees its session."""

    def __init__(self, app: Any, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def limited() -> Any:
            try:
                return await asyncio.wait_for(receive(), self.seconds)
            except TimeoutError:
                return {"type": "websocket.disconnect", "code": 1001}

        await self.app(scope, limited if scope["type"] == "websocket" else receive, send)


def application(env_id: str, sessions: int = 64, idle_seconds: float = 600.0, **kwargs: Any) -> Any:
    """The FastAPI application: at most `sessions` at once, each ended after `idle_seconds` without a message."""
    limits = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=idle_seconds)
    made = partial(CrbcEnvironment, env_id, **kwargs)
    app = http_server.create_fastapi_app(
        made, CrbcAction, CrbcObservation, concurrency_config=limits, env_name="crbc", mode="simulation"
    )
    app.add_middleware(IdleLimit, seconds=idle_seconds)
    return app
