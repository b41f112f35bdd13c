"""One-box Sokoban rooms of the train panel, also with slips, and with actions that do nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crbc_envs.sokoban.panels import SokobanPanel
from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import WON, Outcomes, table

ROOMS = 1_000
"""The number of rooms that one seed can use. Seed 0 begins with the panel's first room."""

HORIZON = 15
"""The longest episode in steps, as in CRBC-Sokoban-v0."""

SLIP = 0.2
"""The chance that a random move replaces the one that was chosen."""

DISTRACTORS = 12
"""The actions that do nothing."""


def moves(room: Room) -> Callable[[State], dict[int, Outcomes[State]]]:
    """The outcomes of each action in a room's states. Action a is `MOVES[a]`, and every action is admissible."""

    def outcomes(state: State) -> dict[int, Outcomes[State]]:
        after = [room.move(state, move) for move in MOVES]
        return {a: [(WON if room.solved(there) else there, 1.0)] for a, there in enumerate(after)}

    return outcomes


def of_room(room: Room, horizon: int = HORIZON) -> TabularMDP:
    """A room as a process."""
    return table(room.start, moves(room), horizon)


def room(seed: int, index: int, horizon: int = HORIZON) -> TabularMDP:
    panel = SokobanPanel("train")
    return of_room(panel[(seed * ROOMS + index) % len(panel)].content, horizon)


def slippery(seed: int, index: int, horizon: int = HORIZON) -> TabularMDP:
    """The same room. A move is replaced by a random one, which may be the same, with chance `SLIP`."""
    sure = room(seed, index, horizon)
    n, actions, _ = sure.successor.shape
    successor = np.broadcast_to(sure.successor[:, None, :, 0], (n, actions, actions)).copy()
    chance = (1.0 - SLIP) * np.eye(actions) + SLIP / actions
    probability = np.broadcast_to(chance, successor.shape).copy()
    return TabularMDP(successor, probability, horizon, sure.anchor, sure.admissible, sure.distance)


def distracted(seed: int, index: int, horizon: int = HORIZON) -> TabularMDP:
    """The same room, and `DISTRACTORS` more actions that leave it as it is."""
    plain = room(seed, index, horizon)
    n, actions, _ = plain.successor.shape
    successor = np.repeat(np.arange(n)[:, None, None], actions + DISTRACTORS, axis=1)
    successor[:, :actions] = plain.successor
    sure = np.ones(successor.shape)
    return TabularMDP(successor, sure, horizon, plain.anchor, distance=plain.distance)
