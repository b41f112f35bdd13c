"""Examples for a transcript: episodes that the environment's expert plays on training tasks.

The published demonstrations are other people's texts about other tasks. These are made here, from (environment, kind
of task, number), so that every run and every machine has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from crbc_envs.actions import requested_action
from crbc_envs.chat import ChatEpisode
from crbc_envs.tasks import rng
from crbc_lab.agents.transcript import THOUGHT, Style, Turn
from crbc_rl.errors import ConfigError

SEARCHED, PLAYED = 200, 20
"""Training tasks among which those of a kind are looked for where no list orders them, and how many of these the expert
plays at most."""
LONGEST = 15
"""Actions of an example; where too few are so short, the shortest are taken."""


@dataclass
class ExpertExamples:
    """The examples for a kind of task: `count` of them, played by the expert of `chat`'s environment.

    `chat` plays training tasks, and shows observations as a transcript does. Where no training task has the kind, as in
    splits by kind, tasks of any kind serve. `tasks` names the tasks of the examples given so far. Raises `ConfigError`
    where the environment has no expert.
    """

    chat: ChatEpisode
    style: Style
    count: int
    tasks: dict[str, list[str]] = field(default_factory=dict)
    _written: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, kind: str) -> Sequence[str]:
        if kind not in self._written:
            self._written[kind] = self._find(kind)
        return self._written[kind]

    def _find(self, kind: str) -> list[str]:
        panel = self.chat.env.panel
        near = range(len(panel) if panel.listed else min(SEARCHED, len(panel)))  # listed by name, kinds lie far apart
        numbers = [n for n in near if panel.kind(n) == kind] or list(near)
        played: list[tuple[int, int, str]] = []  # actions, task, transcript
        for number in numbers[:PLAYED] if self.count else ():
            if (example := self._play(number)) is not None:
                played.append((example[0], number, example[1]))
            if sum(actions <= LONGEST for actions, _, _ in played) == self.count:
                break
        if len(played) < self.count:
            raise ConfigError(
                f"react.examples: {self.count}, and the expert of {self.chat.env.domain} solves {len(played)} of the "
                f"{len(numbers[:PLAYED])} training tasks that were tried: set react.examples={len(played)}"
            )
        shortest = sorted(sorted(played)[: self.count], key=itemgetter(1))
        self.tasks[kind] = [panel[number].id for _, number, _ in shortest]
        return [example for _, _, example in shortest]

    def _play(self, task: int) -> tuple[int, str] | None:
        """The number of actions and the transcript of the expert's episode; None where it fails."""
        self.chat.begin(task=task, seed=task, rollout=0)
        expert = self.chat.env.expert(rng("examples", task))
        if expert is None:
            raise ConfigError(
                f"react.examples: {self.chat.env.domain} has no expert to play them: set react.examples=0, or name a "
                "file of your own examples with react.file"
            )
        opening, turns, before, actions = self.chat.prompt.text, list[Turn](), "", 0
        while not self.chat.over:
            try:
                reply = expert(self.chat.observation, self.chat.info)
            except ValueError:  # it knows no way from here
                return None
            action, thought = requested_action(reply) or "", _thought(reply)
            if thought and thought != before:
                turns.append((self.style.thought.format(thought), THOUGHT))
                before = thought
            self.chat.reply(reply)
            actions += 1
            turns.append((action, self.chat.prompt.text))
        return (actions, f"{opening}\n{self.style.write(turns)}") if self.chat.success else None


def _thought(reply: str) -> str:
    _, opened, rest = reply.partition("<think>")
    return " ".join(rest.partition("</think>")[0].split()) if opened else ""


def own_examples(text: str) -> Callable[[str], Sequence[str]]:
    """The examples of a person's own file, for every kind of task: blocks between lines of `---`."""
    blocks = [block.strip("\n") for block in text.split("\n---\n")]
    return lambda kind: blocks
