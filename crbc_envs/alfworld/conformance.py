"""How `crbc bench conformance CRBC-ALFWorld-v0` compares the exact engine with TextWorld: on the tasks of a panel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from crbc_envs.alfworld.engine.conformance import COMPARED, conform
from crbc_envs.alfworld.engine.game import parse
from crbc_envs.alfworld.engine.textworld import require_packages
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.alfworld.experts.expert import plan
from crbc_envs.storage.outcomes import Conformance, Outcome


def play(count: int, steps: int, seed: int, **kwargs: Any) -> Iterator[Outcome]:
    """Play the first `count` games of a panel, each with its own seed. The expert plans what has no walkthrough."""
    require_packages()
    panel = AlfworldEnv(**kwargs).panel
    for index in range(min(count, len(panel))):
        file = panel[index].content
        if file.walkthrough is None:
            file = replace(file, walkthrough=plan(parse(file)))
        yield conform(file, steps, seed + index)


CONFORMANCE = Conformance("TextWorld", COMPARED, play, tasks=5)
