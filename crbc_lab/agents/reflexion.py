"""`reflexion`: trials of a task, with a memory of what the model wrote about those that failed (Shinn et al. 2023).

After a failed trial the model reads the trial's transcript and writes a new plan. The newest plans stand in the prompts
of the next trial, before the task. Success at any trial is success at that trial, and ends the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crbc_envs.actions import outside_thoughts
from crbc_envs.prompts import Prompt, View
from crbc_lab.agents.config import ReflexionSection
from crbc_lab.agents.episode import SOLVED, Asking, Episode
from crbc_lab.agents.react import React

LONGEST_PLAN = 4_000
"""Characters of a reflection that are kept."""

QUESTION = (
    "You will be given the history of a past experience: an environment, a task, and what you did there. The task was "
    "not completed. Leave the environment undescribed, and think about the strategy and the path that you took. Then "
    "write a new, concise plan. It says what went wrong and names the actions that you should have taken instead. You "
    "will have it at hand when you try the same task again."
)
"""Ours, with the content of the published one."""


def memory_text(plans: Sequence[str], most: int) -> str:
    """The newest `most` plans as they stand in a prompt, each with the number of its trial; empty without any."""
    kept = list(enumerate(plans, 1))[len(plans) - min(most, len(plans)) :]
    if not kept:
        return ""
    return "\n".join(["Your memory for the task below:", *(f"Trial {number}:\n{plan}" for number, plan in kept)])


def reflection_prompt(history: str, memory: str, system: str | None) -> Prompt:
    """The question after a failed trial: its transcript, the memory so far, and the place of the new plan.

    Where it is too long for a model, `Prompt.shortened` takes the first lines of the transcript.
    """

    def template(view: View) -> str:
        parts = [QUESTION, view.observation.rstrip("\n"), "STATUS: FAIL", memory, "New plan:"]
        return "\n\n".join(part for part in parts if part)

    view = View("", history, (), 0, ())
    return Prompt(template(view), (), system, (template, view))


def plan_of(reply: str) -> str:
    """The plan in a reply, without thoughts before it and without its heading."""
    return outside_thoughts(reply)[0].strip().removeprefix("New plan:").strip()[:LONGEST_PLAN]


@dataclass(frozen=True, slots=True)
class Reflexion:
    """The agent. It plays each trial as `react` does."""

    settings: ReflexionSection
    react: React

    def __call__(self, episode: Episode) -> Asking:
        for number in range(1, self.settings.trials + 1):
            memory = memory_text(episode.reflections, self.settings.memory)
            transcript = yield from self.react.trial(episode, memory)
            episode.settle()
            if episode.trials[-1].ending == SOLVED or number == self.settings.trials:
                return
            history = transcript.text(self.react.settings.longest)
            answer = yield reflection_prompt(history, memory, self.react.system)
            episode.reflections.append(plan_of(answer.text))
