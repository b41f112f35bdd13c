"""Engine backends: one episode of a game, run by the exact engine or by TextWorld."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import GameFile, parse
from crbc_envs.alfworld.engine.state import Game

if TYPE_CHECKING:
    from crbc_envs.alfworld.engine.textworld import TextWorldGame

ENGINES = ("exact", "textworld")

shared_parse = lru_cache(maxsize=64)(parse)
"""Parses a game once per file, so that the copies of a group share one game and its cache."""


class ExactBackend:
    """One episode: the game's last text, the exact state, the admissible commands, and whether the goal is reached."""

    def __init__(self, game: Game) -> None:
        self.game, self.state, self.feedback = game, game.start, engine.intro(game)

    @property
    def admissible(self) -> tuple[str, ...]:
        return engine.admissible(self.game, self.state)

    @property
    def won(self) -> bool:
        return engine.won(self.game, self.state)

    def step(self, command: str) -> None:
        self.state, self.feedback = engine.step(self.game, self.state, command)


class TextWorldBackend:
    """TextWorld plays. `state` follows by the exact engine's rules from `parsed`, the same game."""

    def __init__(self, game: TextWorldGame, parsed: Game) -> None:
        self.game, self.node = game, game.root
        self.feedback = self.node.feedback
        self.parsed, self.state = parsed, parsed.start

    @property
    def admissible(self) -> tuple[str, ...]:
        return self.node.admissible

    @property
    def won(self) -> bool:
        return self.node.won

    def step(self, command: str) -> None:
        self.node = self.game.step(self.node, command)
        self.feedback = self.node.feedback
        self.state, _ = engine.step(self.parsed, self.state, command)


EngineBackend = ExactBackend | TextWorldBackend


def require_engine(name: str) -> None:
    """Raise `RequirementError` if the engine of that name is not installed."""
    if name == "textworld":
        from crbc_envs.alfworld.engine.textworld import require_packages

        require_packages()


def make_engine_backend(name: str, file: GameFile) -> EngineBackend:
    """Start an episode of a game with the engine of that name."""
    if name == "exact":
        return ExactBackend(shared_parse(file))
    from crbc_envs.alfworld.engine.textworld import shared_game

    return TextWorldBackend(shared_game(file), shared_parse(file))
