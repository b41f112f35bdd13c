"""Games of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from alfworld_games import game_json, trajectory_json

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE
from crbc_envs.alfworld.games.generate import generate_game
from hostile.case import HERE, OUTSIDE, RAN, Case


def game(change: Callable[[dict[str, Any], str], None]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/games with one game, after `change`, which gets its fields and a payload.

    The payload is Python that makes a file in FOLDER/outside.
    """

    def make(folder: Path) -> None:
        honest = generate_game(np.random.default_rng(0), "clean", size="small")
        fields = json.loads(game_json(honest))
        change(fields, f"__import__('pathlib').Path('{folder / OUTSIDE / RAN}').touch()")
        place = folder / HERE / "games" / "train" / "clean" / "trial"
        place.mkdir(parents=True)
        (place / GAME_FILE).write_text(json.dumps(fields), encoding="utf-8")
        (place / TRAJECTORY_FILE).write_text(trajectory_json(honest), encoding="utf-8")

    return make


def play(folder: Path, engine: Any = "exact") -> None:
    """Play the game: look, open and close a receptacle, and whatever the first command is."""
    from crbc_envs.alfworld.env import AlfworldEnv

    env = AlfworldEnv(data="official", data_dir=folder / HERE / "games", engine=engine)
    env.reset(seed=0, options={"task": 0})
    for start in ("look", "inventory", "go to", "examine", "close"):
        commands = env.backend.admissible
        env.step(next((command for command in commands if command.startswith(start)), commands[0]))


def play_textworld(folder: Path) -> None:
    play(folder, "textworld")


def code_in_the_sentence(fields: dict[str, Any], payload: str) -> None:
    """What TextWorld would run."""
    fields["grammar"] = fields["grammar"].replace("Your task is to: ", f"Your task is to: {{{payload}}}", 1)


def foreign_domain(fields: dict[str, Any], payload: str) -> None:
    """What TextWorld's planner would read in C."""
    derived = "(:derived (opened ?r) (openable ?r)) (:functions"
    fields["pddl_domain"] = fields["pddl_domain"].replace("(:functions", derived)


CODE = "no code from data"
CASES = [
    Case("game-honest", "what is honest still works", 0, make=game(lambda *_: None), probe=play),
    *(
        Case(f"game-{name}", CODE, 2, says=("clean/trial",), make=game(change), probe=play_textworld)
        for name, change in {"code-in-the-sentence": code_in_the_sentence, "foreign-domain": foreign_domain}.items()
    ),
]
