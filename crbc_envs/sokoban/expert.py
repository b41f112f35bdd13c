"""A scripted Sokoban expert. Its thought is one short phrase.

A careful reply follows an exact solution. A hasty reply moves towards the nearest box and pushes it in any
direction, often into a corner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from crbc_envs.actions import tagged
from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_envs.sokoban.solver import best_moves, distances, solve

MAX_EXPANDED = 100_000
"""The number of states that one search in a large room expands. It bounds an expert's reply to a second or two."""


def careful_reply(room: Room, state: State, distance: Mapping[State, int], rng: np.random.Generator) -> str | None:
    """A reply with one of the best moves. The thought is the direction of the next push. None at a dead end."""
    best = best_moves(room, state, distance)
    if not best:
        return None
    return _reply(_next_push(room, state, distance), best[rng.integers(len(best))])


def hasty_reply(room: Room, state: State, rng: np.random.Generator) -> str:
    """A reply that moves towards the nearest box, or pushes it."""

    def gap(cell: int, box: int) -> int:
        return abs(cell // room.width - box // room.width) + abs(cell % room.width - box % room.width)

    box = min(sorted(state.boxes), key=lambda b: gap(state.player, b))
    current = gap(state.player, box)
    moves = [m for m in MOVES if room.move(state, m) != state and gap(state.player + room.shifts[m], box) < current]
    choices = moves or MOVES
    move = choices[rng.integers(len(choices))]
    return _reply(move, move)


def _reply(push: str | None, move: str) -> str:
    return tagged(move, f"box {push}")


def _next_push(room: Room, state: State, distance: Mapping[State, int]) -> str | None:
    """The direction of the first push in a shortest solution. None at a dead end."""
    while moves := best_moves(room, state, distance):
        after = room.move(state, moves[0])
        if after.boxes != state.boxes:
            return moves[0]
        state = after
    return None


class Board(Protocol):
    """What the expert sees: the room and its current state."""

    room: Room
    state: State


def make_expert(
    board: Board, rng: np.random.Generator, hasty: float = 0.0, gives_up: bool = False
) -> Callable[[object, object], str]:
    """An expert for the episode that begins on `board`.

    A reply is hasty with probability `hasty`, and always at a dead end, where an expert that `gives_up` raises
    `ValueError` instead. Otherwise it is careful. In a room with too many states to list (`solver.MAX_STATES`), a
    careful reply follows one shortest solution; where that takes too long to find, the reply is hasty.
    """
    if not 0 <= hasty <= 1:
        raise ValueError(f"hasty is a probability, got {hasty!r}")
    search = distances(board.room)
    searched: dict[State, int] = {}
    dead: set[State] = set()

    def reply(observation: object, info: object) -> str:
        distance: Mapping[State, int] = search
        if board.state not in search and not search.complete:
            if board.state not in searched and board.state not in dead:
                if (path := _along_solution(board.room, board.state)) is None:
                    dead.add(board.state)
                searched.update(path or {})
            distance = searched
        if gives_up and (board.state in dead or (search.complete and board.state not in search)):
            raise ValueError("a dead end: no moves lead to success")
        careful = None if rng.random() < hasty else careful_reply(board.room, board.state, distance, rng)
        return careful or hasty_reply(board.room, board.state, rng)

    return reply


def _along_solution(room: Room, state: State) -> dict[State, int] | None:
    """The distances of the states on a shortest solution from `state`; of none if the search takes too long. None at a
    dead end."""
    try:
        moves = solve(room, state, MAX_EXPANDED)
    except ValueError:
        return {}
    if moves is None:
        return None
    path = {state: len(moves)}
    for left, move in zip(reversed(range(len(moves))), moves, strict=True):
        state = room.move(state, move)
        path[state] = left
    return path
