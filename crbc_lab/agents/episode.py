"""Defines what an agent plays: an episode of one task, which is a trial or several, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from anchors import Rollout
from crbc_envs.chat import ChatEpisode
from crbc_envs.prompts import Prompt
from crbc_envs.storage.rollouts import Frame, RecordedTurn

SOLVED, FAILED, STEPS, TURNS, STUCK, UNANSWERED = "solved", "failed", "steps", "turns", "stuck", "unanswered"
"""How a trial ended: in success; in failure; out of steps; out of replies, thoughts included; given up after the same
action with the same answer, again and again; without an answer of the model."""

Asking = Generator[Prompt, str, None]
"""An agent at work: it yields prompts and is sent the model's replies."""


class Trial:
    """One trial: the environment's episode, and what the model read and said at each of its steps."""

    def __init__(self, chat: ChatEpisode, task: int, seed: int) -> None:
        self.chat = chat
        self.turns: list[RecordedTurn] = []
        self.frames: list[Frame] = []
        self.thoughts = 0
        self.gave_up = ""
        """Why the agent ended it, or the model did: one of `TURNS`, `STUCK`, `UNANSWERED`."""
        chat.begin(task=task, seed=seed)

    @property
    def over(self) -> bool:
        return self.chat.over or bool(self.gave_up)

    def act(self, reply: str, prompt: Prompt, said: str) -> None:
        """Execute a reply in the environment, and keep the prompt that led to it and what was said."""
        self.chat.reply(reply)
        self.turns.append(RecordedTurn(prompt.text, said, 0.0, (), ()))
        self.frames += prompt.images[:1]

    @property
    def ending(self) -> str:
        if not self.chat.over:
            return self.gave_up or UNANSWERED
        return SOLVED if self.chat.success else STEPS if self.chat.record["truncated"] else FAILED

    @property
    def score(self) -> float:
        """The task score; 0 for a trial that did not come to an end of its own."""
        return float(self.chat.record["score"]) if self.chat.over else 0.0

    def rollout(self) -> Rollout | None:
        """The steps of the trial, which ends where the agent stopped; None without a step."""
        return self.chat.rollout(cut=True) if self.turns else None


@dataclass(frozen=True, slots=True)
class Played:
    """What is kept of a trial, once its environment plays another."""

    ending: str
    score: float
    thoughts: int
    rollout: Rollout | None
    turns: list[RecordedTurn]
    frames: list[Frame]

    @classmethod
    def of(cls, trial: Trial) -> Played:
        return cls(trial.ending, trial.score, trial.thoughts, trial.rollout(), trial.turns, trial.frames)


@dataclass
class Episode:
    """All trials of one task under one seed. An episode counts once, however many trials it has."""

    chat: ChatEpisode
    task: int
    seed: int
    env_seed: int
    trials: list[Played] = field(default_factory=list)
    reflections: list[str] = field(default_factory=list)
    current: Trial | None = None
    unanswered: str = ""
    """Why a call finally failed; empty where none did."""

    def begin(self) -> Trial:
        """Begin the next trial; all of them start alike."""
        self.settle()
        self.current = Trial(self.chat, self.task, self.env_seed)
        return self.current

    def settle(self) -> None:
        """Keep what was played of the current trial."""
        if self.current is not None:
            self.trials.append(Played.of(self.current))
            self.current = None

    def fail(self, reason: str) -> None:
        """End the episode, since a call has finally failed."""
        self.unanswered = reason
        if self.current is not None and not self.current.over:
            self.current.gave_up = UNANSWERED

    @property
    def solved_at(self) -> int | None:
        """The number of the trial that succeeded, from 1; None where none did."""
        return next((n for n, trial in enumerate(self.trials, 1) if trial.ending == SOLVED), None)


Agent = Callable[[Episode], Asking]
"""Plays an episode to its end."""
