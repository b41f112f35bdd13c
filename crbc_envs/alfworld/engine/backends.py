"""Who answers an agent's commands: one episode of a game, in the exact engine or in TextWorld."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import GameFile, parse
from crbc_envs.alfworld.engine.state import Game

if TYPE_CHECKING:
    from crbc_envs.alfworld.engine.textworld import TextWorldGame

ENGINES = ("exact", "textworld")

shared_parse = lru_cache(maxsize=64)(parse)
"""Parsed games by file, so that the copies of a group share one game and its memo."""


class Player(Protocol):
    """What is said last, what can be done now, and whether the goal is reached."""

    said: str

    @property
    def admissible(self) -> tuple[str, ...]: ...

    @property
    def won(self) -> bool: ...

    def do(self, command: str) -> None: ...


class ExactPlayer:
    def __init__(self, game: Game) -> None:
        self.game, self.state, self.said = game, game.start, engine.intro(game)

    @property
    def admissible(self) -> tuple[str, ...]:
        return engine.admissible(self.game, self.state)

    @property
    def won(self) -> bool:
        return engine.won(self.game, self.state)

    def do(self, command: str) -> None:
        self.state, self.said = engine.step(self.game, self.state, command)


class TextWorldPlayer:
    def __init__(self, game: TextWorldGame) -> None:
        self.game, self.node = game, game.root
        self.said = self.node.said

    @property
    def admissible(self) -> tuple[str, ...]:
        return self.node.admissible

    @property
    def won(self) -> bool:
        return self.node.won

    def do(self, command: str) -> None:
        self.node = self.game.step(self.node, command)
        self.said = self.node.said


def require_engine(name: str) -> None:
    """Raise `RequirementError` where the engine of that name is not installed."""
    if name == "textworld":
        from crbc_envs.alfworld.engine.textworld import require_packages

        require_packages()


def make_player(name: str, file: GameFile) -> Player:
    """A player at the start of a game, by the name of its engine."""
    if name == "exact":
        return ExactPlayer(shared_parse(file))
    from crbc_envs.alfworld.engine.textworld import shared_game

    return TextWorldPlayer(shared_game(file))
