"""Sokoban boards as numbers, and a small network that learned one box by imitation and goes on with three."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crbc_envs.sokoban.panels import Level, SokobanPanel
from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_lab.studies.learning.agents import Networks
from crbc_lab.studies.learning.processes import Processes
from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.behaviours import steps_lost
from crbc_lab.studies.worlds.build import Outcomes, table
from crbc_lab.studies.worlds.sokoban import moves

REACH = 3
"""Squares to each side of the player that the network sees: a 6x6 room has a floor of 4x4."""
SEEN = (3, 2 * REACH + 1, 2 * REACH + 1)
"""Walls, boxes and targets about the player."""
HIDDEN = 64
BOXES, HORIZON = 3, 30
TRAINED, TESTED, TASKS = 384, 256, 16
"""Rooms that are trained in, those of a test, and those of an update."""
TAUGHT, BATCH, RATE = 512, 256, 3e-3
"""Imitation: rooms with one box, states of a step, and the rate that falls to 0."""


def of_room(room: Room, horizon: int) -> tuple[TabularMDP, NDArray[np.float32]]:
    """A room as a process, and what the network sees of its states, (N, D)."""
    found, moved = list[State](), moves(room)

    def outcomes(state: State) -> dict[int, Outcomes[State]]:
        found.append(state)
        return moved(state)

    process = table(room.start, outcomes, horizon)
    return process, seen(room, found)


def seen(room: Room, states: Sequence[State]) -> NDArray[np.float32]:
    """Walls, boxes and targets about the player of each state, (N, D)."""
    height, width = room.height + 2 * REACH, room.width + 2 * REACH

    def place(cells: Iterable[int]) -> NDArray[np.int64]:
        rows, columns = np.divmod(np.array(list(cells)), room.width)
        return (rows + REACH) * width + columns + REACH

    planes = np.zeros((len(states), 3, height * width), dtype=np.float32)
    planes[:, 0] = 1.0
    planes[:, 0, place(room.floor)] = 0.0
    boxes = np.array([sorted(state.boxes) for state in states])
    np.put_along_axis(planes[:, 1], place(boxes.ravel()).reshape(boxes.shape), 1.0, axis=1)
    planes[:, 2, place(room.targets)] = 1.0
    window = np.add.outer(width * np.arange(-REACH, REACH + 1), np.arange(-REACH, REACH + 1)).ravel()
    about = place(state.player for state in states)[:, None] + window
    return np.take_along_axis(planes, about[:, None], axis=2).reshape(len(states), -1)


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """The first `count` rooms of a split from task `first` on, side by side, with the features of their states."""

    processes: Processes
    features: Tensor

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, split: str, boxes: int, count: int, horizon: int, first: int = 0) -> Rooms:
        panel = SokobanPanel(split, Level.of_size(num_boxes=boxes))
        parts = [of_room(panel[task].content, horizon) for task in range(first, first + count)]
        features = torch.from_numpy(np.concatenate([features for _, features in parts]))
        return cls(Processes.of([process for process, _ in parts]), features)


@lru_cache(maxsize=4)
def taught(boxes: int, steps: int) -> torch.nn.Module:
    """A network that imitates the best moves in rooms with so many boxes. The seed is always the same."""
    rooms = Rooms.of("train", boxes, TAUGHT, HORIZON)
    rng = np.random.default_rng([3, boxes, steps])
    each = rooms.processes.each
    solvable = np.flatnonzero(np.isfinite(np.concatenate([process.distance for process in each])))
    best = torch.from_numpy(np.concatenate([steps_lost(process) == 0.0 for process in each])).float()
    best /= best.sum(dim=1, keepdim=True)
    network = _fresh(rng)
    optimizer = torch.optim.Adam(network.parameters())
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1.0 - step / steps)
        states = torch.from_numpy(rng.choice(solvable, BATCH))
        loss = torch.nn.functional.cross_entropy(network(rooms.features[states]), best[states])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def _fresh(rng: np.random.Generator) -> torch.nn.Module:
    sizes = (int(np.prod(SEEN)), HIDDEN, HIDDEN, len(MOVES))
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(sizes):
        linear = torch.nn.Linear(before, after)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(rng.normal(0.0, before**-0.5, (after, before))))
            linear.bias.zero_()
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def players(start: tuple[int, int], rooms: tuple[str, int, int], generators: Sequence[np.random.Generator]) -> Networks:
    """Runs that begin with imitation, of boxes and steps, and are tested in `rooms`: split, first task and number."""
    split, first, count = rooms
    trained, tested = Rooms.of("train", BOXES, TRAINED, HORIZON), Rooms.of(split, BOXES, count, HORIZON, first)
    return Networks(
        taught(*start), (trained.processes, trained.features), (tested.processes, tested.features), TASKS, generators
    )
