"""Prompts: the text, and the image if any, that a policy reads at a step.

An environment may have its own templates, by style (`AnchorEnv.templates`); the generic ones (`GENERIC`) serve every
other. A prompt holds the task, the current observation, the admissible actions and the most recent observation-action
records, two in the paper (appendix "Prompt Templates"). The records are never part of the anchor.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crbc_envs.actions import OPEN_ACTION, Replies
from crbc_envs.errors import EnvError

HISTORY_LENGTH = 2
"""Records in a prompt, as in the paper."""

IMAGE = "<image>"
"""The placeholder for an image in a prompt's text."""


@dataclass(frozen=True, slots=True)
class View:
    """The input of a template: everything it may use at one step.

    `task` is the text of the task, `admissible` has the texts of the actions that are admissible now. `observation` is
    the text of the observation, empty for a frame. `frame` says that it is one: a template shows it by `IMAGE`. `step`
    counts the steps before this one; `history` has the last (observation, action) records of them.
    """

    task: str
    observation: str
    admissible: tuple[str, ...]
    step: int
    history: tuple[tuple[str, str], ...]
    frame: bool = False


Template = Callable[[View], str]
"""Makes the text of a prompt from a `View`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user message: its `text`, and in `images` one frame, uint8 (H, W, 3), for each `IMAGE` in the text.

    `system` is the system message before it. None: the default of the model's chat template. `source` has the template
    that made the text, and its input.
    """

    text: str
    images: tuple[NDArray[np.uint8], ...] = ()
    system: str | None = None
    source: tuple[Template, View] | None = field(default=None, compare=False, repr=False)

    def shortened(self, fits: Callable[[Prompt], bool]) -> Prompt | None:
        """This prompt with as much of its records as `fits`, or without records with as much of its observation; None
        where nothing fits. `fits(prompt)` says whether a prompt is short enough.

        The oldest record goes first. Of the observation the first lines go, and `CUT` stands for them; of a single line
        the first words, of a single word the first characters. The template makes each text anew, so its own words, the
        task and the admissible actions stay.
        """
        if self.source is None:
            return None
        template, view = self.source

        def without(records: int, observation: str = view.observation) -> Prompt:
            return replace(self, text=template(replace(view, history=view.history[records:], observation=observation)))

        every = len(view.history)
        if (records := _least(every, lambda k: fits(without(k)))) is not None:
            return without(records)
        rest = view.observation
        for pattern in (_LINES, _WORDS, _CHARACTERS):
            pieces = pattern.findall(rest)

            def cut(k: int, pieces: list[str] = pieces) -> Prompt:
                return without(every, CUT + "".join(pieces[k:]))

            def cut_fits(k: int, cut: Callable[[int], Prompt] = cut) -> bool:
                return fits(cut(k))

            if (gone := _least(len(pieces) - 1, cut_fits)) is not None:
                return cut(gone)
            rest = "".join(pieces[-1:])
        return None


CUT = "[...]\n"
"""Stands for the beginning of an observation that did not fit."""

_LINES, _WORDS, _CHARACTERS = (re.compile(pattern) for pattern in (r"[^\n]*\n|[^\n]+", r"\s*\S+\s*", r"(?s:.)"))
"""The pieces of an observation, from the largest to the smallest."""


def _least(most: int, fits: Callable[[int], bool]) -> int | None:
    """The least k from 1 to `most` that `fits`, where all larger ones do too; None where none does."""
    if most < 1 or not fits(most):
        return None
    return 1 + bisect_left(range(1, most), True, key=fits)


def generic_text(view: View) -> str:
    """For any environment: the task, the records, the observation, the admissible actions, and how to reply."""
    lines = [f"Your task is: {view.task.removesuffix('.')}."]
    if view.history:
        first = view.step - len(view.history) + 1
        lines.append(f"You have taken {view.step} step(s). Your last {len(view.history)} observation(s) and action(s):")
        lines += [
            f"[Observation {k}: '{seen}', Action {k}: '{act}']" for k, (seen, act) in enumerate(view.history, first)
        ]
    lines.append(f"You are now at step {view.step + 1}. Your current observation is: {_shown(view)}")
    if view.admissible:
        lines.append(f"Your admissible actions are: [{', '.join(repr(action) for action in view.admissible)}].")
    lines.append(
        "First reason step by step about the current situation, within <think> </think> tags. "
        "Then give one action for the current step, within <action> </action> tags."
    )
    return "\n".join(lines)


def generic_compact(view: View) -> str:
    """For any environment and a tiny model: the same in few tokens."""
    records = [line for seen, done in view.history for line in (seen, f"> {done}")]
    actions = [f"Actions: {', '.join(view.admissible)}"] if view.admissible else []
    return "\n".join([f"Task: {view.task}", *records, _shown(view), *actions, "Your action?"])


def instructed(template: Template, replies: Replies = "thought") -> Template:
    """The template for a model that was not trained on it: where its text names no `<action>` tag, it says how to reply
    in the grammar `replies`, and the admissible actions if the text does not list them."""
    thought = (
        "First reason about the situation, within <think> </think> tags. Then give" if replies == "tags" else "Give"
    )

    def told(view: View) -> str:
        text = template(view)
        if not isinstance(text, str) or OPEN_ACTION in text:  # what is no text, the window refuses
            return text
        actions = ", ".join(view.admissible)
        listed = [f"The admissible actions are: {actions}."] if actions and actions not in text else []
        return "\n".join([text, *listed, f"{thought} one admissible action, within <action> </action> tags."])

    return told


def _shown(view: View) -> str:
    return IMAGE if view.frame else view.observation


GENERIC: Mapping[str, Template] = {"text": generic_text, "compact": generic_compact}
"""The styles that every environment has, unless its own templates replace them."""


class HasTemplates(Protocol):
    """Anything with prompt templates: an environment, its class, or a `GroupVectorEnv`."""

    domain: str
    templates: Mapping[str, Template]


@dataclass
class PromptWindow:
    """Makes the prompts of one member during an episode, their text by `template`. `history` keeps the last records,
    (observation, action), two by default. `system` is the system message (None: the default of the model's chat
    template). `domain` names the environment in errors."""

    template: Template
    history: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    system: str | None = None
    domain: str = "prompt"

    @classmethod
    def of(
        cls,
        env: HasTemplates | type[HasTemplates],
        prompt: str | Template,
        history: int = HISTORY_LENGTH,
        system: str | None = None,
    ) -> PromptWindow:
        """The window of one member of `env`. `prompt` is a style or a template of one's own.

        `history` is how many records it keeps, `system` the system message (None: the chat template's default).
        Raises `ValueError` if there is no such style. Where a template returns no text, `ask` raises `EnvError`.
        """
        styles = {**GENERIC, **env.templates}
        if isinstance(prompt, str) and prompt not in styles:
            near = get_close_matches(prompt, styles, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(styles)}"
            raise ValueError(f"no prompt style {prompt!r} for {env.domain}; {hint}")
        template = styles[prompt] if isinstance(prompt, str) else prompt
        return cls(template, deque(maxlen=history), system, env.domain)

    def prompt(self, observation: Any, info: dict[str, Any]) -> str:
        """The prompt's text for an `observation` and its `info`, without the image."""
        return self._written(self._view(observation, info))

    def _written(self, view: View) -> str:
        text: Any = self.template(view)
        if not isinstance(text, str):
            name = getattr(self.template, "__qualname__", self.template)
            raise EnvError(f"{self.domain}, step {view.step}: the prompt {name} is {text!r}; return its text")
        return text

    def _view(self, observation: Any, info: dict[str, Any]) -> View:
        task, admissible, history = info["task"], info["admissible_actions"], tuple(self.history)
        if frame := is_frame(observation):  # only the template marks the place of a frame
            task, *admissible = (_without_places(text) for text in (task, *admissible))
            history = tuple((_without_places(seen), _without_places(done)) for seen, done in history)
        return View(
            task=task,
            observation=_text(observation),
            admissible=tuple(admissible),
            step=info["step"],
            history=history,
            frame=frame,
        )

    def ask(self, observation: Any, info: dict[str, Any]) -> Prompt:
        """The prompt for an `observation` and its `info`: text, and the current frame if the template uses `IMAGE`."""
        view = self._view(observation, info)
        text = self._written(view)
        frames = (observation,) if IMAGE in text and is_frame(observation) else ()
        return Prompt(text, frames, self.system, (self.template, view))

    def require_frame(self, prompt: Prompt, observation: Any) -> None:
        """Raise `ValueError` where the `observation` is a frame and its `prompt` has no place for it, or the other way
        round."""
        places, frame = IMAGE in prompt.text, is_frame(observation)
        if frame and not places:
            raise ValueError(
                f"{self.domain}: the observation is a frame, and the prompt has no place for it, so the policy would "
                "not see it: make the environment with observation=text, or choose another style or template"
            )
        if places and not frame and IMAGE not in str(observation):
            raise ValueError(f"{self.domain}: the prompt shows a frame, and the observation is none: observation=rgb")

    def record(self, observation: Any, action: str) -> None:
        """Keep a record: the `action` that was executed after `observation`."""
        self.history.append((_text(observation), action))


@dataclass
class Conversation:
    """What one member has seen, and what it is asked next. The learner and `ChatEpisode` both ask through it."""

    window: PromptWindow
    observation: Any
    info: dict[str, Any]

    def __post_init__(self) -> None:
        self.observation = _kept(self.observation)

    def prompt(self) -> Prompt:
        return self.window.ask(self.observation, self.info)

    def observe(self, observation: Any, info: dict[str, Any]) -> None:
        """What the environment answered. The observation before it becomes a record, with the executed action."""
        self.window.record(self.observation, info["action"])
        self.observation, self.info = _kept(observation), info


def _kept(observation: Any) -> Any:
    """The observation, copied where an environment may write the next one into it."""
    return deepcopy(observation) if isinstance(observation, np.ndarray | dict | list | tuple) else observation


def is_frame(observation: Any) -> bool:
    """Whether an observation is a picture: an array (H, W, 3) uint8."""
    return (
        isinstance(observation, np.ndarray)
        and observation.dtype == np.uint8
        and observation.ndim == 3
        and observation.shape[2] == 3
    )


def _without_places(text: str) -> str:
    return text.replace(IMAGE, "[image]")


def _text(observation: Any) -> str:
    if isinstance(observation, np.ndarray):
        return "" if is_frame(observation) else str(observation.tolist())
    return str(observation)
