"""A scripted Sokoban expert. Its thought is one short phrase.

A careful reply follows an exact solution. A hasty reply moves towards the nearest box and pushes it in any
direction, often into a corner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from crbc_envs.actions import tagged
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_envs.sokoban.solver import best_moves, distances


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


def demonstrations(
    env: SokobanEnv, rng: np.random.Generator, hasty: float
) -> Iterator[tuple[str, dict[str, object], str]]:
    """An endless stream of steps: text observation, info and the expert's reply, episode after episode.

    A reply is hasty with probability `hasty`, and always at a dead end. Otherwise it is careful.
    """
    while True:
        obs, info = env.reset(options={"task": int(rng.integers(len(env.panel)))})
        distance = distances(env.room)
        over = False
        while not over:
            careful = None if rng.random() < hasty else careful_reply(env.room, env.state, distance, rng)
            reply = careful or hasty_reply(env.room, env.state, rng)
            yield obs, info, reply
            obs, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
