"""A run of a prompting agent: its folder, its environments, and the agent that its config asks for.

settings.json    the config, and the panel that is played      calls.jsonl      every call, the cache and the account
episodes.jsonl   one record for each finished episode          rollouts/        their transcripts, seedS/TASK.parquet
agents.json      the result                                    transcripts/     some of them, half of them unsolved
.lock            who writes here
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbc_envs.chat import ChatEpisode
from crbc_envs.prompts import PromptWindow, Template, View, instructed
from crbc_envs.storage.files import read_json, refuse_link, replace_file
from crbc_envs.vector.contract import attribute
from crbc_envs.vector.members import make_member
from crbc_lab.agents.asking import line_to
from crbc_lab.agents.config import AgentsConfig
from crbc_lab.agents.episode import Agent, Episode, direct
from crbc_lab.agents.examples import ExpertExamples, own_examples
from crbc_lab.agents.ledger import Ledger
from crbc_lab.agents.play import Play
from crbc_lab.agents.react import Examples, React
from crbc_lab.agents.records import Records
from crbc_lab.agents.reflexion import Reflexion
from crbc_lab.agents.results import FILE, result
from crbc_lab.agents.transcript import STYLES
from crbc_rl.config import flat
from crbc_rl.errors import ConfigError
from crbc_rl.policies.api import Policy
from crbc_rl.policies.chat import ChatPolicy
from crbc_rl.rollout.panel import choose
from crbc_rl.rollout.prompts import prompt_options
from crbc_rl.runs.own import lock

SETTINGS, CALLS = "settings.json", "calls.jsonl"
TRANSCRIPT = "transcript"
"""The style of prompts in which an environment shows one observation of a transcript."""


def plain(view: View) -> str:
    """An observation of a transcript, for environments without a style of their own."""
    return view.observation if view.step else f"Your task is to: {view.task.removesuffix('.')}.\n{view.observation}"


@dataclass
class Run:
    """An agent with its environments. Close it when it is no longer needed.

    Making it writes nothing. Raises `ConfigError` for a template or a module that cannot be used.
    """

    config: AgentsConfig
    chats: list[ChatEpisode] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        places = self.config.episodes * len(self.config.seeds)
        for _ in range(min(self.config.limits.concurrency, places)):
            self.chats.append(self._chat(self.config.split, self.config.env.kwargs))
        self.chosen = choose(self.chats[0].env.panel, self.config.split, self.config.episodes)
        self.examples: Examples = lambda kind: ()
        react = self.config.react
        if react.text is not None:
            self.examples = own_examples(react.text)
        elif react.examples and self.config.agent != "direct":
            # The expert may need more steps than the agent is given.
            own = {name: value for name, value in self.config.env.kwargs.items() if name != "max_steps"}
            self.examples = ExpertExamples(self._chat("train", own), STYLES[react.style], react.examples)

    def close(self) -> None:
        self._open.close()

    def agent(self) -> Agent:
        config = self.config
        if config.agent == "direct":
            return direct
        if config.agent == "react":
            return React(config.react, self.examples, config.env.system)
        react = React(config.react, self.examples, config.env.system, config.reflexion.stuck)
        return Reflexion(config.reflexion, react)

    def panel(self) -> dict[str, Any]:
        """What is played: the environment, its tasks and one hash over their contents."""
        env, tasks = self.chats[0].env, self.chosen.tasks
        played = {"env": self.config.env.id, "kwargs": self.config.env.kwargs, "split": env.panel.split}
        tagger = {"reward_tagger": found} if (found := attribute(env, "reward_tagger", "")) else {}
        told = {"data": getattr(env, "data", ""), "panel": self.chosen.name, **tagger}
        return {**played, **told, "tasks": len(tasks), "digest": self.chosen.digest(env.panel)}

    def play(
        self,
        folder: Path,
        model: ChatPolicy | Policy,
        again: bool,
        progress: Callable[[int, Ledger], None],
        transcripts: int = 16,
    ) -> dict[str, Any]:
        """Play what is not finished yet in a run folder, and write its result, also after an interruption.

        With `again`, episodes without an answer of the model are played again; what was answered is not asked again.
        `progress` is called with the number of finished episodes, at the start and after each. Raises `ConfigError`
        where the folder holds another run, or another process writes there.
        """
        config, panel = self.config, self.panel()
        held = open_folder(folder, config, panel)
        ledger, records = Ledger(folder / CALLS, config), Records(folder, config.env.id, self._example_tasks())
        places = [(seed, task) for seed in config.seeds for task in self.chosen.tasks]

        known = records.episodes
        todo = [place for place in places if place not in known or (again and known[place]["unanswered"])]

        def tell() -> None:
            progress(sum(place in known for place in places), ledger)

        def keep(stopped: str) -> dict[str, Any]:
            done = [known[place] for place in places if place in known]
            return _write_json(folder / FILE, result(config, done, ledger, panel, stopped))

        play = Play(config, self.agent(), self.chats, ledger, records, tell)
        keep("it is under way, or was killed")
        stopped = "interrupted"
        try:
            if todo:
                tell()
                with line_to(model, config, answered=ledger.spent.calls > ledger.spent.failed) as line:
                    play.run(line, todo)
                records.keep_transcripts(transcripts)
            stopped = play.stopped
        except ConfigError as error:
            stopped = str(error)
            raise
        finally:
            document = keep(stopped)
            del held
        document["this_start"] = {"asked": ledger.asked, "from_cache": ledger.from_cache, "played": len(todo)}
        return document

    def _example_tasks(self) -> dict[str, list[str]]:
        return self.examples.tasks if isinstance(self.examples, ExpertExamples) else {}

    def _chat(self, split: str, kwargs: dict[str, Any]) -> ChatEpisode:
        """An environment that shows its prompts as the agent reads them."""
        options = prompt_options(self.config)
        replies = self.config.env.replies or "thought"
        member = make_member(self.config.registered_id(), {**kwargs, "split": split, "replies": replies})
        if self.config.agent != "direct":
            shown: str | Template = TRANSCRIPT if TRANSCRIPT in member.templates else plain
            options = {**options, "prompt": shown, "history": 0}
        else:
            options["prompt"] = instructed(PromptWindow.of(member, **options).template, replies)
        chat = ChatEpisode(member, **options)
        self._open.enter_context(closing(chat))
        return chat


def open_folder(folder: Path, config: AgentsConfig, panel: dict[str, Any]) -> object:
    """Begin or continue a run in a folder, and return its lock.

    Raises `ConfigError` where it holds something else, or a run with other settings or tasks.
    """
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; name another folder with --run DIR")
    if (folder / "config.yaml").exists():
        raise ConfigError(f"{folder} holds a training run: choose another folder with --run DIR")
    folder.mkdir(parents=True, exist_ok=True)
    held = lock(folder)
    path = refuse_link(folder / SETTINGS)
    settings = json.loads(json.dumps({"config": config.identity(), "panel": panel}))
    if not path.exists() or not (folder / CALLS).exists():  # one that asked nothing may be corrected
        _write_json(path, settings)
        return held
    try:
        kept = read_json(path)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read ({error}): choose another folder with --run DIR") from error
    if difference := _difference(kept, settings):
        raise ConfigError(
            f"{folder} holds a run with other settings ({difference}): choose another folder with --run DIR. Only "
            "limits, prices, the endpoint's address and its key may change"
        )
    return held


def _write_json(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Write a file, whole or not at all, and return what was written."""
    replace_file(path, json.dumps(content, indent=2).encode() + b"\n")
    return content


def _difference(kept: Any, now: dict[str, Any]) -> str:
    """The first value in which two settings differ; empty where they are equal."""
    before, after = flat(kept if isinstance(kept, dict) else {}), flat(now)
    for name in sorted({*before, *after}):
        there, here = before.get(name), after.get(name)
        if there != here:
            return f"{name.removeprefix('config.')}: {str(there)[:60]} there, {str(here)[:60]} now"
    return ""


def first_prompt(run: Run, task: int) -> str:
    """The first prompt of a task, as the agent would ask it."""
    with closing(run.agent()(Episode(run.chats[0], task, 0, 0))) as asking:
        return next(asking).text
