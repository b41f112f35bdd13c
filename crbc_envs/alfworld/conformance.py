"""How `crbc bench conformance` compares the exact engine with TextWorld: on the tasks of a panel, or on everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crbc_envs.alfworld.engine.conformance import COMPARED, Listed, conform, published
from crbc_envs.alfworld.engine.game import FAMILIES, GameFile, parse
from crbc_envs.alfworld.engine.textworld import require_packages
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.alfworld.experts.expert import plan
from crbc_envs.alfworld.games.generate import VERBS, Verb, generate_game, reworded
from crbc_envs.alfworld.games.household import SIZES
from crbc_envs.storage.outcomes import Conformance, Outcome


def play(count: int, steps: int, seed: int, **kwargs: Any) -> Iterator[Outcome]:
    """Play the first `count` games of a panel, each with its own seed. The expert plans what has no walkthrough."""
    require_packages()
    panel = AlfworldEnv(**kwargs).panel
    for index in range(min(count, len(panel))):
        yield conform(_planned(panel[index].content), steps, seed + index)


def _planned(file: GameFile) -> GameFile:
    return replace(file, walkthrough=plan(parse(file))) if file.walkthrough is None else file


# ---- everything ------------------------------------------------------------------------------------

GENERATED = 240
"""Generated games: each family, size and wording in turn."""


def everything(directory: Path) -> list[Listed]:
    """All published games below a folder, every second one in the older wording, and `GENERATED` games.

    Raises `DataError` if the folder holds no game.
    """
    worded = ((game, VERBS[n % len(VERBS)]) for n, game in enumerate(published(directory)))
    games = [Listed(f"{game.name} ({verb})", partial(_in_words, game, verb)) for game, verb in worded]
    return games + [Listed(f"generated/{n}", partial(_generated, n)) for n in range(GENERATED)]


def _in_words(game: Listed, verb: Verb) -> GameFile:
    file = game.read()
    return _planned(file if verb == VERBS[0] else reworded(file, verb))


def _generated(number: int) -> GameFile:
    rest, family = divmod(number, len(FAMILIES))
    rng = np.random.default_rng([7, number])
    size, verb = SIZES[rest % 2], VERBS[rest // 2 % 2]
    return _planned(generate_game(rng, list(FAMILIES.values())[family], size=size, verb=verb))


CONFORMANCE = Conformance("TextWorld", COMPARED, play, tasks=5)
