"""The real engine: games played by the alfworld and textworld packages, each loaded once and shared.

TextWorld has one state per loaded game and cannot copy it, but fast-downward numbers the states it has
been in and goes back to them. A `Node` is such a number with what else TextWorld keeps, so any number
of players share one game: seconds to load, and a tenth of a second for each new step, paid once.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from anchors import anchor_key
from crbc_envs.alfworld.engine.game import GameFile
from crbc_envs.errors import RequirementError

INSTALL = 'pip install "crbc[alfworld]"'

PACKAGES = ("alfworld", "textworld", "fast_downward")
"""What the real engine imports."""


def require_packages() -> None:
    """Raise `RequirementError` where a package of the real engine is missing, with the command that installs it."""
    lacking = [name for name in PACKAGES if find_spec(name) is None]
    if lacking:
        raise RequirementError(
            f'engine="textworld" plays with the real ALFWorld, and {", ".join(lacking)} is not installed: {INSTALL}'
        )


@dataclass(eq=False, slots=True)
class Node:
    """A state the game has been in, and what is known of it."""

    said: str
    admissible: tuple[str, ...]
    won: bool
    number: int
    """Fast-downward's."""
    added: frozenset[Any]
    """Facts that the root does not have; `removed` are those it has and this does not."""
    removed: frozenset[Any]
    operators: dict[int, Any]
    valid: tuple[list[str], list[Any]]
    """TextWorld's commands and their actions."""
    after: dict[str, Node] = field(default_factory=dict)


class TextWorldGame:
    """One game in the real engine. `root` is its start; `step` goes from any node to the next.

    Raises `ModuleNotFoundError` where the packages are missing, naming the command that installs them.
    """

    def __init__(self, file: GameFile) -> None:
        with globals_kept():
            self._env = _idle.pop() if _idle else original_env()
            self._env.load(game_data(file))
            state = self._env.reset()
        self._lib = self._env.downward_lib
        self._lib.get_state_id.restype = ctypes.c_int
        self._lib.set_state_id.argtypes = [ctypes.c_int]
        weakref.finalize(self, _idle.append, self._env).atexit = False
        self._start: frozenset[Any] = frozenset(self._env._pddl_state.facts)
        self.root = self._here = self._node(state)

    def step(self, node: Node, command: str) -> Node:
        """What follows a command; played once, then remembered."""
        if command not in node.after:
            self._go_to(node)
            state, _, _ = self._env.step(command)
            self._here = self._node(state)
            if command not in node.valid[0]:
                return self._here  # any text may come here, so it is not remembered
            node.after[command] = self._here
        return node.after[command]

    def _node(self, state: Any) -> Node:
        facts = frozenset(self._env._pddl_state.facts)
        return Node(
            said=state.feedback,
            admissible=tuple(state["admissible_commands"]),
            won=bool(state["won"]),
            number=self._lib.get_state_id(),
            added=facts - self._start,
            removed=self._start - facts,
            operators=self._env._pddl_state._operators,
            valid=(state["_valid_commands"], state["_valid_actions"]),
        )

    def _go_to(self, node: Node) -> None:
        if node is self._here:
            return
        state = self._env._pddl_state
        facts, wanted = frozenset(state.facts), (self._start | node.added) - node.removed
        self._lib.set_state_id(node.number)
        state.remove_facts(facts - wanted)
        state.add_facts(wanted - facts)
        state._operators = node.operators
        self._env.state["_valid_commands"], self._env.state["_valid_actions"] = node.valid


_idle: list[Any] = []
"""Environments whose game nobody plays any more. Each has a copy of fast-downward's library, which does
not survive being unloaded, so the next game takes one over: there are never more than games at a time."""

_games: weakref.WeakValueDictionary[str, TextWorldGame] = weakref.WeakValueDictionary()


def shared_game(file: GameFile) -> TextWorldGame:
    """The game, loaded if nobody in this process plays it yet; unloaded with its last player."""
    key = anchor_key("\0".join((file.domain, file.grammar, file.problem)))
    game = _games.get(key)
    if game is None:
        game = _games[key] = TextWorldGame(file)
    return game


def game_data(file: GameFile) -> dict[str, str]:
    """A game as TextWorld loads it."""
    return {"pddl_domain": file.domain, "grammar": file.grammar, "pddl_problem": file.problem}


def original_env() -> Any:
    """TextWorld's environment with ALFWorld's names, as `AlfredTWEnv` puts them together."""
    try:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'engine="textworld" plays with the real ALFWorld, and {error.name} is not installed: {INSTALL}'
        ) from error
    return AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))


@contextmanager
def globals_kept() -> Iterator[None]:
    """Importing alfworld sets an environment variable, and loading a game overwrites the command line."""
    arguments, variables = sys.argv, dict(os.environ)
    try:
        yield
    finally:
        sys.argv = arguments
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
