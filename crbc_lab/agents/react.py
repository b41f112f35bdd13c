"""`react`: thoughts and actions in one transcript, which is the whole prompt (Yao et al. 2023).

A thought is free: the environment does not move, and the observation is "OK.". Each reply is one line of the
transcript, and at most `turns` lines are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from crbc_envs.actions import CUT_THOUGHT, EMPTY, LIMITS, NOT_ADMISSIBLE, REFUSED, cause_of, tagged
from crbc_envs.prompts import Prompt
from crbc_lab.agents.config import ReactSection
from crbc_lab.agents.episode import STUCK, TURNS, Asking, Episode, Trial
from crbc_lab.agents.ledger import Answer
from crbc_lab.agents.transcript import STYLES, THOUGHT, Head, Style, Turn, transcript_prompt

Examples = Callable[[str], Sequence[str]]
"""The examples for a task of this kind, written out."""


@dataclass(frozen=True, slots=True)
class React:
    """The agent. `stuck` is as in `ReflexionSection`; `react` alone never gives up."""

    settings: ReactSection
    examples: Examples
    system: str | None = None
    stuck: int = 0

    @property
    def style(self) -> Style:
        return STYLES[self.settings.style]

    def __call__(self, episode: Episode) -> Asking:
        yield from self.trial(episode, "")

    def trial(self, episode: Episode, memory: str) -> Generator[Prompt, Answer, Transcript]:
        """Play one trial; the transcript of it."""
        trial = episode.begin()
        chat = trial.chat
        kind = chat.env.panel[episode.task].kind
        head = Head(self.style, self.settings.instruction, self.examples(kind), memory, chat.prompt.text)
        transcript = Transcript(self.style, head.opening)
        most = self.settings.turns or chat.env.max_steps or math.inf
        pending: list[Turn] = []  # thoughts since the last action
        first: Prompt | None = None  # the prompt that they began with
        while not trial.over:
            if len(transcript.turns) >= most:
                trial.ending = TURNS
                break
            prompt = self._prompt(head, transcript, trial)
            answer = yield prompt
            cause = _cut(answer)
            first = first or prompt
            said = [""] if cause else self.style.lines(answer.text)
            action = said.pop() if self.style.thought_of(said[-1]) is None else None
            for thought in said:
                trial.thoughts += 1
                pending.append((thought, THOUGHT))
                transcript.turns.append(pending[-1])
            if action is None:
                continue
            shown = self.style.write(pending) + self.style.gap + self.style.said + (answer.text if cause else action)
            trial.act(tagged(action), first, shown.strip("\n"), cause=cause if cause or action else EMPTY)
            transcript.turns.append((action, chat.prompt.text))
            pending, first = [], None
            if self.stuck and transcript.repeated() > self.stuck and not trial.over:
                trial.ending = STUCK
        return transcript

    def _prompt(self, head: Head, transcript: Transcript, trial: Trial) -> Prompt:
        listed = trial.chat.info["admissible_actions"] if self.settings.admissible else ()
        return transcript_prompt(head, transcript.turns, listed, self.system, self.settings.longest)


def _cut(answer: Answer) -> str:
    """The cause where a reply asks for nothing. Empty where its lines are read, or an action in both of its tags."""
    cause = cause_of(answer.text, "thought", answer.finish_reason)
    ended = (answer.finish_reason or "").lower() in LIMITS and cause != NOT_ADMISSIBLE
    return cause if ended or cause in (REFUSED, CUT_THOUGHT) else ""


@dataclass
class Transcript:
    """What was said and seen in one trial."""

    style: Style
    opening: str
    turns: list[Turn] = field(default_factory=list)

    def text(self, longest: int) -> str:
        """The whole of it, of which the oldest turns go where it has more than `longest` characters."""
        written = [self.style.write([turn]) for turn in self.turns]
        room = longest - len(self.opening)
        kept = 0
        while kept < len(written) and len(written[-1 - kept]) <= room:
            room -= len(written[-1 - kept])
            kept += 1
        gone = "[...]\n" * (kept < len(written))
        return f"{self.opening}\n{gone}{''.join(written[len(written) - kept :])}"

    def repeated(self) -> int:
        """How often the last action has had the same answer in a row; thoughts between are passed over."""
        acts = [turn for turn in self.turns if turn[1] != THOUGHT or self.style.thought_of(turn[0]) is None]
        count = 0
        while count < len(acts) and acts[-1 - count] == acts[-1]:
            count += 1
        return count
