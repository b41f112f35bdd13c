"""Prompts: the text, and the image if any, that a policy reads at a step.

Each environment has its own templates, by style (`AnchorEnv.templates`). A prompt holds the task, the current
observation, the admissible actions and at most the `HISTORY_LENGTH` most recent observation-action records
(paper, appendix "Prompt Templates"). The records are never part of the anchor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

HISTORY_LENGTH = 2


IMAGE = "<image>"
"""The placeholder for an image in a prompt's text."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user message: its text, and one frame, uint8 (H, W, 3), for each `IMAGE` in the text."""

    text: str
    images: tuple[NDArray[np.uint8], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The input of a template: everything it may use at one step."""

    task: str
    observation: str
    admissible: tuple[str, ...]
    step: int
    history: tuple[tuple[str, str], ...]


Template = Callable[[View], str]
"""Makes the text of a prompt from a `View`."""


class HasTemplates(Protocol):
    """Anything with prompt templates: an environment, its class, or a `GroupVectorEnv`."""

    domain: str
    templates: Mapping[str, Template]


@dataclass
class PromptWindow:
    """Makes the prompts of one member during an episode. It keeps the last `HISTORY_LENGTH` records."""

    template: Template
    history: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))

    @classmethod
    def of(cls, env: HasTemplates | type[HasTemplates], style: str) -> PromptWindow:
        """The window of one member of `env`. Raises `ValueError` if the environment has no such style."""
        if style not in env.templates:
            known = ", ".join(env.templates) or "none"
            raise ValueError(f"no prompt style {style!r} for {env.domain}; known: {known}")
        return cls(env.templates[style])

    def prompt(self, observation: Any, info: dict[str, Any]) -> str:
        """The prompt's text, without the image."""
        return self.template(
            View(info["task"], _text(observation), info["admissible_actions"], info["step"], tuple(self.history))
        )

    def ask(self, observation: Any, info: dict[str, Any]) -> Prompt:
        """The prompt: its text, and the current frame if the template uses `IMAGE`."""
        text = self.prompt(observation, info)
        return Prompt(text, (observation,) if IMAGE in text and isinstance(observation, np.ndarray) else ())

    def record(self, observation: Any, action: str) -> None:
        self.history.append((_text(observation), action))


def _text(observation: Any) -> str:
    return "" if isinstance(observation, np.ndarray) else str(observation)
