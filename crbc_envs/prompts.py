"""What the policy is shown at a step. Each environment brings its templates, by style (`AnchorEnv.templates`).

A prompt holds the task, the current observation, the admissible actions and at most the
`HISTORY_LENGTH` most recent observation-action records (paper, appendix "Prompt Templates").
Records never take part in the anchor.
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


Template = Callable[[View], str]
"""A prompt's text from what may be used for it."""


class HasTemplates(Protocol):
    """An environment, its class, or a group of it."""

    domain: str
    templates: Mapping[str, Template]


@dataclass
class PromptWindow:
    """One member's prompt as its episode goes on; remembers the last `HISTORY_LENGTH` records."""

    template: Template
    history: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))

    @classmethod
    def of(cls, env: HasTemplates | type[HasTemplates], style: str) -> PromptWindow:
        """The window of one member of `env`. Raises `ValueError` for a style that the environment does not have."""
        if style not in env.templates:
            known = ", ".join(env.templates) or "none"
            raise ValueError(f"no prompt style {style!r} for {env.domain}; known: {known}")
        return cls(env.templates[style])

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
