"""What the policy is shown at a step: the paper's templates, and a compact view for tiny models.

A prompt holds the task, the current observation, the admissible actions and at most the
`HISTORY_LENGTH` most recent observation-action records (paper, appendix "Prompt Templates").
Records never take part in the anchor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_envs.alfworld import observation as household
from crbc_envs.webshop import observation as shop

HISTORY_LENGTH = 2


IMAGE = "<image>"
"""Stands in a prompt where its picture goes."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user message: its text, and a frame, uint8 (H, W, 3), for each `IMAGE` in it."""

    text: str
    images: tuple[NDArray[np.uint8], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """Everything a template may use at one step."""

    task: str
    observation: str
    admissible: tuple[str, ...]
    step: int
    history: tuple[tuple[str, str], ...]


_SOKOBAN_RULES = """\
You are an expert agent operating in the Sokoban environment. Your goal is to push all the boxes onto the target \
spots. Once all boxes are on the targets, you win!

# Rules
You can only push boxes. You can't pull them, so plan ahead to avoid getting stuck.
You can't walk through or push boxes into walls.
To avoid traps, do not push boxes into corners or against walls where they can't be moved again.
"""

_SOKOBAN_IMAGE_LEGEND = """
# Visual Elements in the Image:
Character: A small, green alien-like figure with two antennae and black eyes. It represents you.
Box: A yellow crate marked with an orange "X" across its front. It is the box you need to push.
Target: A black tile outlined in red, with a small red diamond shape in the center. It marks the destination where a \
box should be pushed.
"""

_SOKOBAN_TEXT_LEGEND = """
# Symbols on the board
# wall, _ floor, @ you, + you on a target, $ box, * box on a target, . target
"""

_SOKOBAN_TURN = """
Now it's your turn to make a move (choose ONE action only for the current step).
You should first reason step-by-step about the current situation - observe the positions of boxes and targets, plan a \
path to push a box toward a target, and avoid traps like corners or walls. This reasoning process MUST be enclosed \
within <think> </think> tags.
Once you've finished your reasoning, you should choose an admissible action for current step and present it within \
<action> </action> tags."""


def _admissible_line(view: View) -> str:
    return f"Your admissible actions are [{', '.join(repr(action) for action in view.admissible)}].\n"


def sokoban_image(view: View) -> str:
    """The paper's visual prompt; the frame goes where `<image>` stands. It keeps no history."""
    current = "\n# Current Step\nYour current observation is shown in the image: <image>\n"
    return _SOKOBAN_RULES + _SOKOBAN_IMAGE_LEGEND + current + _admissible_line(view) + _SOKOBAN_TURN


def sokoban_text(view: View) -> str:
    """The paper's prompt with the board as text in the image's place."""
    current = f"\n# Current Step\nYour current observation is:\n{view.observation}\n"
    return _SOKOBAN_RULES + _SOKOBAN_TEXT_LEGEND + current + _admissible_line(view) + _SOKOBAN_TURN


def sokoban_compact(view: View) -> str:
    """The board and nothing else: about 60 tokens, always the same number for one board size."""
    return f"Sokoban\n{view.observation}\nYour move?"


_ALFWORLD_TURN = """
Now it is your turn to take an action. First reason step by step about the current situation. This reasoning process \
MUST be enclosed within <think>...</think>. Once you have finished your reasoning, choose an admissible action for the \
current step and present it within <action>...</action>."""


def alfworld_text(view: View) -> str:
    """The paper's prompt. The sentences about earlier steps are left out before the first one, and `help`
    from the actions. A record has the game's own text, the current observation the lines added to it."""
    lines = [
        "You are an expert agent operating in the ALFRED embodied environment. "
        f"Your task is to: {view.task.removesuffix('.')}."
    ]
    if view.step:
        first = view.step - len(view.history) + 1
        records = "\n".join(
            f"[Observation {k}: '{household.said(seen)}', Action {k}: '{action}']"
            for k, (seen, action) in enumerate(view.history, first)
        )
        lines.append(
            f"Prior to this step, you have already taken {view.step} step(s). Below are the most recent "
            f"{len(view.history)} observations and the corresponding actions you took:\n{records}"
        )
    actions = ",\n".join(f"'{action}'" for action in view.admissible if action != "help")
    lines.append(
        f"You are now at step {view.step + 1} and your current observation is: "
        f"{household.without_admissible(view.observation)}\n"
        f"Your admissible actions for the current situation are: [{actions}]."
    )
    return "\n".join(lines) + "\n" + _ALFWORLD_TURN


def alfworld_compact(view: View) -> str:
    """Task, place, hand, what is seen and what can be done, each said once: about 100 tokens.

    Receptacles to go to stand by kind with their numbers, things to take by receptacle; `help`, `look`,
    `inventory` and `examine` are left out.
    """
    seen = household.said(view.observation) if view.step else "start"
    at, held = (household.line(view.observation, name) for name in (household.LOCATION, household.HOLDING))
    reach: dict[str, list[str]] = {}
    take: dict[str, list[str]] = {}
    others = []
    for action in view.admissible:
        if action.startswith("go to "):
            kind, _, number = action.removeprefix("go to ").rpartition(" ")
            reach.setdefault(kind, []).append(number)
        elif action.startswith("take "):
            item, _, receptacle = action.removeprefix("take ").partition(" from ")
            take.setdefault(receptacle, []).append(item)
        elif action.split()[0] not in ("help", "look", "inventory", "examine"):
            others.append(action)
    numbered = (f"{kind} {' '.join(sorted(numbers, key=lambda n: (len(n), n)))}" for kind, numbers in reach.items())
    do = [
        f"go to {', '.join(numbered)}",
        *(f"take {', '.join(items)} from {receptacle}" for receptacle, items in take.items()),
        *others,
    ]
    return "\n".join([f"Task: {view.task}", seen, f"At: {at}", f"Holding: {held}", *do, "Your action?"])


_WEBSHOP_TURN = """
Now it is your turn to take one action for the current step. First reason step by step about the current situation, \
then carefully choose which admissible action best advances the shopping goal. This reasoning process MUST be enclosed \
within <think>...</think>. Once you have finished your reasoning, choose an admissible action for the current step and \
present it within <action>...</action>."""

WEBSHOP_LIMIT = 13_000
"""Characters; the history is left out of a longer prompt, as in verl-agent."""


def webshop_text(view: View) -> str:
    """The paper's prompt. The sentences about earlier steps are left out before the first one, and the
    task from the pages, since it stands above them."""
    lines = [
        "You are an expert autonomous agent operating in the WebShop e-commerce environment. "
        f"Your task is to: {view.task}."
    ]
    current = (
        f"You are now at step {view.step + 1} and your current observation is: "
        f"{shop.without_task(view.observation, view.task)}\n"
        f"Your admissible actions for the current situation are: ["
        + ",\n".join(f"'{action}'" for action in view.admissible)
        + "]."
    )
    if view.step:
        first = view.step - len(view.history) + 1
        records = "\n".join(
            f"[Observation {k}: '{shop.without_task(seen, view.task)}', Action {k}: '{action}']"
            for k, (seen, action) in enumerate(view.history, first)
        )
        past = (
            f"Prior to this step, you have already taken {view.step} step(s). Below are the most recent "
            f"{len(view.history)} observations and the corresponding actions you took:\n{records}"
        )
        if sum(map(len, (*lines, past, current, _WEBSHOP_TURN))) <= WEBSHOP_LIMIT:
            lines.append(past)
    return "\n".join([*lines, current]) + "\n" + _WEBSHOP_TURN


def webshop_compact(view: View) -> str:
    """The task and the page, what can be clicked in brackets and what has been with a star: 50 to 600 tokens."""
    return f"Task: {view.task}\n{shop.compact(shop.without_task(view.observation, view.task))}Your action?"


TEMPLATES: dict[str, dict[str, Callable[[View], str]]] = {
    "alfworld": {"text": alfworld_text, "compact": alfworld_compact},
    "webshop": {"text": webshop_text, "compact": webshop_compact},
    "sokoban": {"image": sokoban_image, "text": sokoban_text, "compact": sokoban_compact},
}
"""Templates by environment domain and style."""


@dataclass
class PromptWindow:
    """One member's prompt as its episode goes on; remembers the last `HISTORY_LENGTH` records."""

    template: Callable[[View], str]
    history: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))

    @classmethod
    def of(cls, domain: str, style: str) -> PromptWindow:
        styles = TEMPLATES.get(domain, {})
        if style not in styles:
            raise ValueError(f"no prompt style {style!r} for {domain}; known: {', '.join(styles) or 'none'}")
        return cls(styles[style])

    def prompt(self, observation: Any, info: dict[str, Any]) -> str:
        """The text alone."""
        return self.template(
            View(info["task"], _text(observation), info["admissible_actions"], info["step"], tuple(self.history))
        )

    def ask(self, observation: Any, info: dict[str, Any]) -> Prompt:
        """The text, and the frame where the template wants one."""
        text = self.prompt(observation, info)
        return Prompt(text, (observation,) if IMAGE in text and isinstance(observation, np.ndarray) else ())

    def record(self, observation: Any, action: str) -> None:
        self.history.append((_text(observation), action))


def _text(observation: Any) -> str:
    return "" if isinstance(observation, np.ndarray) else str(observation)
