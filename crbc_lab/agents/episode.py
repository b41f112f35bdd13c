"""Defines what an agent plays: an episode of one task, which is a trial or several, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from anchors import Rollout
from crbc_envs.chat import ChatEpisode
from crbc_envs.prompts import Prompt
from crbc_envs.storage.rollouts import Frame, RecordedTurn
from crbc_lab.agents.ledger import Answer

SOLVED, FAILED, STEPS, TURNS, STUCK, UNANSWERED = "solved", "failed", "steps", "turns", "stuck", "unanswered"
"""How a trial ended: in success; in failure; out of steps; out of replies, thoughts included; given up after the same
action with the same answer, again and again; without an answer of the model."""

Asking = Generator[Prompt, Answer, None]
"""An agent at work: it yields prompts and is sent the model's answers."""


class Trial:
    """One trial: the environment's episode, and what the model read and said at each of its steps."""

    def __init__(self, chat: ChatEpisode, task: int, seed: int) -> None:
        self.chat = chat
        self.turns: list[RecordedTurn] = []
        self.frames: list[Frame] = []
        self.thoughts = 0
        self.ending = ""
        """One of the words above; while it is played, only where the agent gave it up."""
        self.score = 0.0
        """The task score; 0 for a trial that did not come to an end of its own."""
        self.rollout: Rollout | None = None
        """Its steps, up to where the agent stopped; None without a step."""
        chat.begin(task=task, seed=seed, rollout=0)

    @property
    def over(self) -> bool:
        return self.chat.over or bool(self.ending)

    def act(self, reply: str, prompt: Prompt, said: str, finish_reason: str | None = None, cause: str = "") -> None:
        """Execute a reply in the environment, and keep the prompt that led to it and what was said.

        `finish_reason` is the reply's. `cause` is why it is invalid, where the agent knows better than its text.
        """
        self.chat.reply(reply, finish_reason)
        self.turns.append(
            RecordedTurn(prompt.text, said, 0.0, (), (), self.chat.causes[-1] and (cause or self.chat.causes[-1]))
        )
        self.frames += prompt.images[:1]

    def end(self) -> None:
        """Keep how it ended and its steps, before its environment plays another."""
        if self.chat.over:
            self.ending = SOLVED if self.chat.success else STEPS if self.chat.record["truncated"] else FAILED
            self.score = float(self.chat.record["score"])
        self.rollout = self.chat.rollout(cut=True) if self.turns else None


@dataclass
class Episode:
    """All trials of one task under one seed. An episode counts once, however many trials it has."""

    chat: ChatEpisode
    task: int
    seed: int
    env_seed: int
    trials: list[Trial] = field(default_factory=list)
    reflections: list[str] = field(default_factory=list)
    current: Trial | None = None
    unanswered: str = ""
    """Why a call finally failed; empty where none did."""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    """What its calls cost; those from the cache as when they were made."""

    def count(self, answer: Answer) -> None:
        self.calls += 1
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self.seconds += answer.seconds

    def begin(self) -> Trial:
        """Begin the next trial; all of them start alike."""
        self.settle()
        self.current = Trial(self.chat, self.task, self.env_seed)
        return self.current

    def settle(self) -> None:
        """Keep what was played of the current trial."""
        if self.current is not None:
            self.current.end()
            self.trials.append(self.current)
            self.current = None

    def fail(self, reason: str) -> None:
        """End the episode, since a call has finally failed."""
        self.unanswered = reason
        if self.current is not None and not self.current.over:
            self.current.ending = UNANSWERED

    @property
    def solved_at(self) -> int | None:
        """The number of the trial that succeeded, from 1; None where none did."""
        return next((n for n, trial in enumerate(self.trials, 1) if trial.ending == SOLVED), None)


Agent = Callable[[Episode], Asking]
"""Plays an episode to its end."""


def direct(episode: Episode) -> Asking:
    """The agent `direct`: each step is asked for by the environment's own prompt.

    These are the rows of the paper's tables that bear the name of a model alone.
    """
    trial = episode.begin()
    while not trial.over:
        prompt = trial.chat.prompt
        answer = yield prompt
        trial.act(answer.text, prompt, answer.text, answer.finish_reason)
