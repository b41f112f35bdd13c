"""Transcripts of thoughts, actions and observations, in the two published formats of ReAct.

line     > think: First I need a mug.          bracket    Action: think[It must be red.]
         OK.                                              Observation: OK.
         > go to desk 1
         On the desk 1, you see a mug 2.                  Action: search[red mug]
         >                                                Observation:
                                                          [Back to Search] ...

                                                          Action:

Source: Yao et al. 2023, "ReAct"; `line` is its prompt for ALFWorld, `bracket` the one for WebShop. The texts are ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crbc_envs.actions import outside_thoughts
from crbc_envs.prompts import Prompt, View

THOUGHT = "OK."
"""The observation after a thought, which changes nothing."""
LONGEST_LINE = 2_000
"""Characters of a line that are kept; no action is longer."""
_ACTION = re.compile(r"<action>\s*([^<\s][^<]*)</action>")
GONE = "[...]"
"""Stands for the oldest turns, where a prompt would be too long."""

Turn = tuple[str, str]
"""What was said in one line, and the observation after it."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a turn is written and read."""

    name: str
    said: str
    """What stands before what is said."""
    seen: str
    """What stands before an observation of one line."""
    thought: str
    """A thought, with {} in its place."""
    pattern: re.Pattern[str]
    """A thought, whose words are its group."""
    rule: str
    """How to reply. A model that completes texts needs no such sentence; one that was trained to chat does."""
    gap: str = ""
    """Between turns."""

    def thought_of(self, said: str) -> str | None:
        """The words of a thought; None for an action."""
        match = self.pattern.fullmatch(said)
        return None if match is None else match[1].strip()

    def write(self, turns: Sequence[Turn]) -> str:
        """The turns as they stand in a transcript."""
        return "".join(f"{self.gap}{self.said}{said}\n{self.observed(seen)}\n" for said, seen in turns)

    def observed(self, observation: str) -> str:
        if self.seen and "\n" in observation:
            return f"{self.seen.rstrip()}\n{observation}"
        return f"{self.seen}{observation}"

    def lines(self, reply: str) -> list[str]:
        """What a reply says: its first line that is not empty, without the mark before it; behind a thought also the
        lines with that mark, up to the first action.

        The published agents stop the model at the end of a line. One that is not stopped goes on like this.
        """
        spoken = outside_thoughts(reply)[0]
        if tags := _ACTION.search(spoken):  # a model that knows these tags may use them unasked
            spoken = tags[1]
        mark, said = self.said.strip(), list[str]()
        for line in filter(None, map(str.strip, spoken.splitlines())):
            if not said or line.startswith(mark):
                said.append(line.removeprefix(mark).strip()[:LONGEST_LINE])
            if self.thought_of(said[-1]) is None:
                break
        return said or [""]


LINE = Style(
    name="line",
    said="> ",
    seen="",
    thought="think: {}",
    pattern=re.compile(r"(?is)think:(.*)"),
    rule='Reply with one line: a thought, "think: ...", or an action.',
)
BRACKET = Style(
    name="bracket",
    said="Action: ",
    seen="Observation: ",
    thought="think[{}]",
    pattern=re.compile(r"(?is)think\[(.*?)\]?"),
    rule="Reply with one line: a thought, think[...], or an action.",
    gap="\n",
)
STYLES = {style.name: style for style in (LINE, BRACKET)}

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before a transcript, and stays where its oldest turns go."""

    style: Style
    instruction: str
    examples: Sequence[str]
    memory: str
    opening: str
    """The first observation, with the task."""

    def text(self) -> str:
        parts = [f"{self.instruction} {self.style.rule}"]
        if self.examples:
            count = len(self.examples)
            number = NUMBERS[count] if count < len(NUMBERS) else str(count)
            parts[0] += " Here is one example." if count == 1 else f" Here are {number} examples."
        parts += [example.strip("\n") for example in self.examples]
        if self.memory:
            parts.append(self.memory)
        return "\n\n".join([*parts, f"Here is the task.\n{self.opening}\n"])


def transcript_prompt(
    head: Head, turns: Sequence[Turn], admissible: Sequence[str], system: str | None, longest: int
) -> Prompt:
    """The prompt for the next line. Of one with more than `longest` characters, the oldest turns go.

    It can be shortened further, as a model with few positions needs (`Prompt.shortened`).
    """

    def template(view: View) -> str:
        gone = f"{GONE}\n" * (len(view.history) < view.step)
        actions = f"Admissible actions: {', '.join(view.admissible)}\n" * bool(view.admissible)
        said = head.style.said.rstrip()
        return f"{head.text()}{gone}{head.style.write(view.history)}{actions}{head.style.gap}{said}"

    view = View(head.opening, "", tuple(admissible), len(turns), tuple(turns))
    prompt = Prompt(template(view), (), system, (template, view))
    if len(prompt.text) <= longest:
        return prompt
    shorter = prompt.shortened(lambda one: len(one.text) <= longest)
    if shorter is not None:
        # What a model's own limit takes from it, it takes from this one.
        return Prompt(shorter.text, (), system, (template, view))
    return Prompt(template(View(head.opening, "", (), len(turns), ())), (), system)
