"""verifiers (and prime-rl, which trains with it): the environments as a taskset and a harness.

    vf-eval crbc_verifiers --env.taskset.env-id CRBC-ALFWorld-v0 --env.taskset.kwargs '{}' --select.limit 24 -r 8

The harness makes one model call for each environment step, each with the whole prompt of its step. The rows of the
steps, as `credit.advantages_from_rows` takes them, are in `trace.info["crbc"]`. A module of its own, since verifiers
finds a plug-in by a name without dots. See docs/adapters/verifiers.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, ClassVar

from crbc_envs import ChatEpisode
from crbc_envs.prompts import HISTORY_LENGTH
from crbc_rl.adapters import refuse_frames, require

require("verifiers", "0.4.0", "0.4.1", "verifiers")

import httpx
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult

__all__ = ["CrbcHarness", "CrbcTaskset"]


ATTEMPTS, BUSY = 5, (408, 409, 429, 500, 502, 503, 504)
"""How often a request is made that a server answers with one of these statuses: verifiers repeats none."""


class EpisodeConfig(vf.TasksetConfig):
    """Which tasks: the first `num_tasks` of a split, all without a number. `kwargs` are the environment's arguments."""

    env_id: str = "CRBC-Sokoban-v0"
    split: str = "test"
    num_tasks: int | None = None
    prompt: str = "compact"
    history: int = HISTORY_LENGTH
    kwargs: dict[str, Any] = {"observation": "text"}  # noqa: RUF012 (pydantic copies it)

    def episode(self) -> ChatEpisode:
        episode = ChatEpisode(self.env_id, self.prompt, history=self.history, split=self.split, **self.kwargs)
        refuse_frames(episode.env, "crbc_verifiers")
        return episode


class EpisodeData(vf.TaskData):
    """`task` is its number in the split, and `played` the config of the episode."""

    task: int
    played: EpisodeConfig


def played(trace: Any) -> dict[str, Any]:
    """`trace.info["crbc"]`; that of no step, where the rollout was cancelled."""
    told: dict[str, Any] = trace.info.get("crbc", {"rows": [], "success": False})
    return told


class EpisodeTask(vf.Task[EpisodeData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def success(self, trace: Any) -> float:
        return float(played(trace)["success"])

    @vf.metric
    async def steps(self, trace: Any) -> float:
        return float(len(played(trace)["rows"]))


class CrbcTaskset(vf.Taskset[EpisodeTask, EpisodeConfig]):
    def load(self) -> Iterator[EpisodeTask]:
        config = self.config
        play = config.episode()
        for task in range(len(play.env.panel))[: config.num_tasks]:
            first = play.begin(task, rollout=0)[-1]["content"]
            yield EpisodeTask(
                EpisodeData(name=play.info["task_id"], prompt=first, task=task, played=config), config.task
            )


class CrbcHarness(vf.Harness[vf.HarnessConfig]):
    """Plays an episode in this process. Its rows have the task's name as group, and the trace's id as rollout."""

    APPENDS_SYSTEM_PROMPT, EXECUTES_CODE, NEEDS_CONTAINER = True, False, False
    idle: ClassVar[dict[str, list[ChatEpisode]]] = {}
    """Episodes of this process whose environments wait for a task, by their config."""

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: EpisodeData,
    ) -> ProgramResult:
        waiting = self.idle.setdefault(json.dumps(data.played.model_dump(mode="json"), sort_keys=True), [])
        play = waiting.pop() if waiting else data.played.episode()
        try:
            messages: list[Any] | None = play.begin(data.task, group=data.name, rollout=trace.id)
            system = [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {secret}"}, timeout=None) as http:
                while messages:
                    asked = {"model": ctx.model, "messages": [*system, *messages]}
                    for attempt in range(ATTEMPTS):
                        again = {"x-stainless-retry-count": str(attempt)}  # else verifiers takes it for another turn
                        said = await http.post(f"{endpoint.rstrip('/')}/chat/completions", json=asked, headers=again)
                        if said.status_code not in BUSY or trace.stop_condition is not None:
                            break
                        await asyncio.sleep(2.0**attempt)
                    if said.is_error and trace.stop_condition is not None:
                        break  # a limit of verifiers'
                    if said.is_error:
                        return ProgramResult(1, "", f"step {len(play.causes)}: {said.status_code} {said.text[:500]}")
                    (choice,) = said.json()["choices"]
                    messages = play.reply(choice["message"]["content"] or "", choice["finish_reason"])
            if play.causes:
                if not play.over:
                    play.cut()
                trace.info["crbc"] = {"rows": play.rows, "success": play.success}
        finally:
            waiting.append(play)
        return ProgramResult(0, "", "")
