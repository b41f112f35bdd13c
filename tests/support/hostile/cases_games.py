"""Games of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from alfworld_games import game_json, trajectory_json

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE
from crbc_envs.alfworld.games.generate import generate_game
from hostile.case import HERE, OUTSIDE, RAN, Case


@lru_cache
def honest_game() -> tuple[str, str]:
    """The two files of a small honest game."""
    game = generate_game(np.random.default_rng(0), "clean", size="small")
    return game_json(game), trajectory_json(game)


def game(change: Callable[[dict[str, Any], str], None]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/games with one game, after `change`, which gets its fields and a payload.

    The payload is Python that makes a file in FOLDER/outside.
    """

    def make(folder: Path) -> None:
        text, trajectory = honest_game()
        fields = json.loads(text)
        change(fields, f"__import__('pathlib').Path('{folder / OUTSIDE / RAN}').touch()")
        write_game(folder, json.dumps(fields), trajectory)

    return make


def write_game(folder: Path, text: str, trajectory: str) -> None:
    place = folder / HERE / "games" / "train" / "clean" / "trial"
    place.mkdir(parents=True)
    (place / GAME_FILE).write_text(text, encoding="utf-8")
    (place / TRAJECTORY_FILE).write_text(trajectory, encoding="utf-8")


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


def in_grammar(old: str, new: str) -> Callable[[dict[str, Any], str], None]:
    """Replaces a text in the grammar; CODE in the new one becomes the payload."""

    def change(fields: dict[str, Any], payload: str) -> None:
        assert old in fields["grammar"]
        fields["grammar"] = fields["grammar"].replace(old, new.replace("CODE", payload), 1)

    return change


def in_sentence(text: str) -> Callable[[dict[str, Any], str], None]:
    return in_grammar("Your task is to: ", f"Your task is to: {text}")


def in_field(key: str, old: str, new: str) -> Callable[[dict[str, Any], str], None]:
    def change(fields: dict[str, Any], payload: str) -> None:
        assert old in fields[key]
        fields[key] = fields[key].replace(old, new)

    return change


def goal(text: str) -> Callable[[dict[str, Any], str], None]:
    def change(fields: dict[str, Any], payload: str) -> None:
        head, _, _ = fields["pddl_problem"].partition("(:goal")
        fields["pddl_problem"] = f"{head}(:goal {text}))"

    return change


CODE = "no code from data"
READER = "bounds in the game reader"
TEXTWORLD: dict[str, Callable[[dict[str, Any], str], None]] = {
    "game-code-in-the-sentence": in_sentence("{CODE}"),
    "game-foreign-domain": in_field("pddl_domain", "(:functions", "(:derived (opened ?r) (openable ?r)) (:functions"),
}
"""What TextWorld would run, or its planner would read in C."""

EXACT: dict[str, tuple[Callable[[dict[str, Any], str], None], str]] = {
    "game-attribute-of-a-slot": (in_grammar('"close {r}"', '"close {r.__class__}"'), "unknown slot"),
    "game-goal-deep": (goal("(not " * 5_000 + "(= a b)" + ")" * 5_000), "nested"),
}


CASES = [
    Case("game-honest", "what is honest still works", 0, make=game(lambda *_: None), probe=play),
    *(
        Case(name, CODE, 2, says=("clean/trial",), make=game(change), probe=play_textworld)
        for name, change in TEXTWORLD.items()
    ),
    *(Case(name, READER, 2, says=(said,), make=game(change), probe=play) for name, (change, said) in EXACT.items()),
]
