"""A prompt as the content of a chat message, for chat templates and chat endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_envs.prompts import IMAGE, Prompt

Part = dict[str, Any]


def content(prompt: Prompt, picture: Callable[[NDArray[np.uint8]], Part]) -> str | list[Part]:
    """The text, or where the prompt has pictures the texts between them and, from `picture`, the pictures in their
    places. Raises `ValueError` where there are more or fewer pictures than places."""
    if not prompt.images:
        return prompt.text
    texts = prompt.text.split(IMAGE)
    if len(texts) != len(prompt.images) + 1:
        raise ValueError(f"a prompt has {len(texts) - 1} places for pictures and {len(prompt.images)} pictures")
    parts: list[Part] = [{"type": "text", "text": texts[0]}]
    for image, text in zip(prompt.images, texts[1:], strict=True):
        parts += [picture(image), {"type": "text", "text": text}]
    return [part for part in parts if part.get("text") != ""]
