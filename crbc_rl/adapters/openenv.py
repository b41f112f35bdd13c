"""OpenEnv: an environment with its Task API, as a server of concurrent sessions and a client.

    crbc serve openenv CRBC-ALFWorld-v0 --port 8000

    with CrbcClient(base_url="http://127.0.0.1:8000").sync() as client:
        seen = client.reset(split="test", index=3, seed=7).observation
        while not seen.done:
            seen = client.step(CrbcAction(text=model(seen.messages))).observation

TRL, verifiers and others read OpenEnv's environments. A session is one WebSocket and one episode at a time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from crbc_envs import ChatEpisode

LONGEST_REPLY, MOST_TASKS = 100_000, 1_000
"""Characters of a reply, and tasks of one answer."""


class CrbcAction(Action):
    text: str = Field(max_length=LONGEST_REPLY)
    """The model's whole reply."""


class CrbcObservation(Observation):
    """`messages` are the next prompt, empty at the end; `record` is `ChatEpisode.record`."""

    messages: list[dict[str, Any]] = Field(default_factory=list)
    record: dict[str, Any] = Field(default_factory=dict)
    anchor: str = ""
    admissible_actions: list[str] = Field(default_factory=list)
    task_id: str = ""


class CrbcEnvironment(Environment[CrbcAction, CrbcObservation, State]):
    """The environment `env_id`; `kwargs` are those of `ChatEpisode`, without a split."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        super().__init__()
        self.episode = cache(lambda split: ChatEpisode(env_id, split=split, **kwargs))
        self._state, self._now = State(), None

    def list_splits(self) -> list[str]:
        return ["train", "validation", "test"]

    def num_tasks(self, split: str) -> int:
        return len(self.episode(split).env.panel)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        task = self.episode(split).env.panel[index]
        return {"id": task.id, "index": index, "text": task.text}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """At most `MOST_TASKS` of them."""
        chosen = range(*slice(start, stop).indices(self.num_tasks(split)))
        return [self.get_task(split, index) for index in chosen[:MOST_TASKS]]

    list_tasks = get_task_range

    def reset(self, seed: int | None = None, episode_id: str | None = None, **task: Any) -> CrbcObservation:
        """`task` may have split, index, group and rollout. Without an index, `seed` draws the task."""
        self._now, self._state = self.episode(task.get("split", "train")), State(episode_id=episode_id)
        ids = {"group": task.get("group"), "rollout": task.get("rollout", 0)}
        return self._seen(self._now.begin(task.get("index"), seed or 0, **ids))

    def step(self, action: CrbcAction, timeout_s: float | None = None, **_: Any) -> CrbcObservation:
        if self._now is None:
            raise ValueError("no episode has begun, or the session before was ended: call reset first")
        self._state.step_count += 1
        return self._seen(self._now.reply(action.text))

    @property
    def state(self) -> State:
        return self._state

    def _seen(self, messages: list[dict[str, Any]] | None) -> CrbcObservation:
        told = {name: self._now.info[name] for name in ("anchor", "admissible_actions", "task_id")}
        record, over = self._now.record, messages is None
        return CrbcObservation(messages=messages or [], record=record, reward=record.get("reward"), done=over, **told)


class CrbcClient(EnvClient[CrbcAction, CrbcObservation, State]):
    """A session on a server; `.sync()` for code without asyncio."""

    def _step_payload(self, action: CrbcAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CrbcObservation]:
        told = {name: payload.get(name) for name in ("reward", "done")}
        return StepResult(observation=CrbcObservation(**{**payload["observation"], **told}), **told)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
