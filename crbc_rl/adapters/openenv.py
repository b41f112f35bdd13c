"""OpenEnv: what a client and a server say to each other, and the client. `crbc_rl.adapters.openenv_server` serves.

    crbc serve openenv CRBC-ALFWorld-v0 --port 8000

    with CrbcClient(base_url="http://127.0.0.1:8000").sync() as client:
        seen = client.reset(split="test", index=3, seed=7, rollout=0).observation
        while not seen.done:
            seen = client.step(CrbcAction(text=model(seen.messages))).observation
        rows += seen.rows

A session is one WebSocket, with one episode after another. The rows of a group's members are the columns of
`credit.advantages_from_rows`. See docs/adapters/openenv.md.
"""

from __future__ import annotations

from typing import Annotated, Any

from crbc_envs import ChatEpisode
from crbc_rl.adapters import require

require("openenv", "0.9", "0.11", "openenv")

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, ConfigDict, Field, ValidationError

ID = str | int


class CrbcTask(BaseModel):
    """The arguments of `reset`.

    Without an index, `seed` draws the task; without either, chance does. The members of a group have the same split,
    index, seed and `group`, by default the task's id and the seed. Each has its own `rollout`, by default its
    `episode_id`; a stochastic environment asks for one of the two.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    split: str = "train"
    index: int | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    group: ID | None = None
    rollout: ID | None = None
    episode_id: str | None = None

    @classmethod
    def read(cls, given: dict[str, Any]) -> CrbcTask:
        """The task of a client. Raises `ValueError`, in one line, for what is no task."""
        try:
            return cls(**{"rollout": given.get("episode_id"), **given})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ValueError(f"reset: {wrong['loc'][0]}: {wrong['msg']}, got {wrong['input']!r:.80}") from error


class CrbcAction(Action):
    """`text` is the model's whole reply, and `finish_reason` what its server says of its end (`ChatEpisode.reply`).
    With `cut` the text says nothing: the episode ends here, as the trainer wants (`ChatEpisode.cut`)."""

    text: str
    finish_reason: str | None = None
    cut: bool = False


class CrbcObservation(Observation):
    """`messages` are the next prompt, empty at the end. `record` is that of the last step (`ChatEpisode.record`), and
    `cause` why its reply was invalid, or "". `rows` has the records of all steps once the episode has ended."""

    messages: list[dict[str, Any]] = Field(default_factory=list)
    anchor: str = ""
    admissible_actions: list[str] = Field(default_factory=list)
    task_id: str = ""
    record: dict[str, Any] = Field(default_factory=dict)
    cause: str = ""
    rows: list[dict[str, Any]] = Field(default_factory=list)

    @classmethod
    def of(cls, episode: ChatEpisode, messages: list[dict[str, Any]] | None) -> CrbcObservation:
        """What an episode has answered."""
        situation = {name: episode.info[name] for name in ("anchor", "admissible_actions", "task_id")}
        cause = episode.causes[-1] if episode.causes else ""
        rows = {"record": episode.record, "cause": cause, "rows": episode.rows if episode.over else []}
        reward = episode.record.get("reward")
        return cls(messages=messages or [], reward=reward, done=episode.over, **situation, **rows)


class CrbcClient(EnvClient[CrbcAction, CrbcObservation, State]):
    """A session on a server. `.sync()` is for code without asyncio; `reset` takes what `CrbcTask` has."""

    def _step_payload(self, action: CrbcAction) -> dict[str, Any]:
        return {"text": action.text, "finish_reason": action.finish_reason, "cut": action.cut}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[CrbcObservation]:
        outcome = {name: payload.get(name) for name in ("reward", "done")}
        return StepResult(observation=CrbcObservation(**{**payload["observation"], **outcome}), **outcome)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
