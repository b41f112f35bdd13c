"""The original engine: the alfworld and textworld packages. Each game is loaded once and shared.

TextWorld has one state per loaded game and cannot copy it. But fast-downward numbers the states it has visited
and can return to them. A `Node` holds such a number and TextWorld's own data for the state, so any number of
episodes share one game. Loading takes seconds and each new step a tenth of a second; both are paid once.
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
from crbc_envs.alfworld.engine.known import check_known
from crbc_envs.errors import RequirementError, install_extra

PACKAGES = ("alfworld", "textworld", "fast_downward")
"""The packages that the original engine imports."""


def require_packages() -> None:
    """Raise `RequirementError` if the original engine cannot play here. It names what has to be installed."""
    if sys.version_info >= (3, 13):  # TextWorld 1.7.0 sets variables through locals(), which 3.13 ignores
        raise RequirementError('engine="textworld" needs Python 3.11 or 3.12: TextWorld 1.7.0 fails on 3.13')
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise RequirementError(_complaint(", ".join(missing)))


def _complaint(missing: str) -> str:
    cure = install_extra("alfworld")
    return f'engine="textworld" uses the original ALFWorld, and {missing} is not installed: {cure}'


@dataclass(eq=False, slots=True)
class Node:
    """A visited state of the game, with its results."""

    feedback: str
    admissible: tuple[str, ...]
    won: bool
    number: int
    """Fast-downward's number of the state."""
    added: frozenset[Any]
    """Facts of this state that the root does not have. `removed` are facts of the root that this state lacks."""
    removed: frozenset[Any]
    operators: dict[int, Any]
    valid: tuple[list[str], list[Any]]
    """TextWorld's valid commands and their actions."""
    after: dict[str, Node] = field(default_factory=dict)


class TextWorldGame:
    """One game in the original engine. `root` is its start; `step` goes from any node to the next.

    Raises `RequirementError` if the packages are missing; it names the install command. Raises `DataError` for a game
    that TextWorld must not read.
    """

    def __init__(self, file: GameFile) -> None:
        data = game_data(file)
        with restored_globals():
            self._env = _idle.pop() if _idle else original_env()
            self._env.load(data)
            state = self._env.reset()
        self._lib = self._env.downward_lib
        self._lib.get_state_id.restype = ctypes.c_int
        self._lib.set_state_id.argtypes = [ctypes.c_int]
        weakref.finalize(self, _idle.append, self._env).atexit = False
        self._start: frozenset[Any] = frozenset(self._env._pddl_state.facts)
        self.root = self._current = self._node(state)

    def __reduce__(self) -> Any:
        raise TypeError('engine="textworld" runs a live engine, so it cannot be pickled; engine="exact" can')

    def step(self, node: Node, command: str) -> Node:
        """The node after a command. It is computed once and then cached."""
        if command not in node.after:
            self._go_to(node)
            state, _, _ = self._env.step(command)
            self._current = self._node(state)
            if command not in node.valid[0]:
                return self._current  # not cached, because the command may be any text
            node.after[command] = self._current
        return node.after[command]

    def _node(self, state: Any) -> Node:
        facts = frozenset(self._env._pddl_state.facts)
        return Node(
            feedback=state.feedback,
            admissible=tuple(state["admissible_commands"]),
            won=bool(state["won"]),
            number=self._lib.get_state_id(),
            added=facts - self._start,
            removed=self._start - facts,
            operators=self._env._pddl_state._operators,
            valid=(state["_valid_commands"], state["_valid_actions"]),
        )

    def _go_to(self, node: Node) -> None:
        if node is self._current:
            return
        state = self._env._pddl_state
        facts, target = frozenset(state.facts), (self._start | node.added) - node.removed
        self._lib.set_state_id(node.number)
        state.remove_facts(facts - target)
        state.add_facts(target - facts)
        state._operators = node.operators
        self._env.state["_valid_commands"], self._env.state["_valid_actions"] = node.valid


_idle: list[Any] = []
"""Environments whose game is no longer used. The next game reuses one of them.

Each has its own copy of fast-downward's library, which cannot be unloaded safely. Reuse limits the number of
copies to the largest number of games in use at a time.
"""

_games: weakref.WeakValueDictionary[str, TextWorldGame] = weakref.WeakValueDictionary()


def shared_game(file: GameFile) -> TextWorldGame:
    """The game, shared by all episodes of this process. It is loaded on first use and released after the last one."""
    key = anchor_key("\0".join((file.domain, file.grammar, file.problem)))
    game = _games.get(key)
    if game is None:
        game = _games[key] = TextWorldGame(file)
    return game


def game_data(file: GameFile) -> dict[str, str]:
    """A game in the form that TextWorld loads. Raises a `DataError` for one that it must not read: see `known`."""
    check_known(file)
    return {"pddl_domain": file.domain, "grammar": file.grammar, "pddl_problem": file.problem}


def original_env() -> Any:
    """TextWorld's environment with ALFWorld's names, composed as in `AlfredTWEnv`."""
    try:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv
    except ModuleNotFoundError as error:
        raise RequirementError(_complaint(str(error.name))) from error
    return AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))


@contextmanager
def restored_globals() -> Iterator[None]:
    """Restores sys.argv and the environment: importing alfworld sets a variable, and loading a game overwrites argv."""
    arguments, variables = sys.argv, dict(os.environ)
    try:
        yield
    finally:
        sys.argv = arguments
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
