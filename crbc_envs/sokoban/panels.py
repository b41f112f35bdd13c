"""Sokoban's task panels: the suite's own, and the boards of the paper's seeds."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from crbc_envs.sokoban.published import paper_room
from crbc_envs.sokoban.rooms import PANEL_SIZE, TEXT, SokobanPanel, canonical_digest
from crbc_envs.sokoban.rules import Room
from crbc_envs.sokoban.solver import distances
from crbc_envs.tasks import Task, TaskPanel

PANELS = ("clean", "paper")

PAPER_SIZE = {**PANEL_SIZE, "train": 2**16 - 1}

FIRST_SEED = {"train": 0, "validation": 2**16, "test": 2**16 + PAPER_SIZE["validation"]}
"""The seed of each split's first board. verl-agent uses training seeds below 2**16 - 1 and validation seeds from
2**16 on."""


class PaperPanel(TaskPanel[Room]):
    """The boards of the paper's code family (`published.paper_room`), one seed after another.

    The splits share no seed, but they share boards: at 6x6 with one box, few boards are possible and fewer are
    likely. About 38 % of the validation boards are among the 4,800 boards of the paper's 150 updates of 32 tasks;
    counting mirror images, three in four. Success on this panel is therefore partly memory. It exists for comparison
    with published figures. `SokobanPanel` has no such leak. The solutions are also short: nearly half of the boards
    need at most three moves (see `solution_lengths`).
    """

    def __init__(self, split: str, height: int = 6, width: int = 6, num_boxes: int = 1) -> None:
        super().__init__(split, PAPER_SIZE.get(split, 0))
        self.shape = (height, width, num_boxes)

    def _task(self, index: int) -> Task[Room]:
        return _paper_task(self.split, index, *self.shape)


@lru_cache(maxsize=4096)
def _paper_task(split: str, index: int, height: int, width: int, num_boxes: int) -> Task[Room]:
    room = paper_room(FIRST_SEED[split] + index, height, width, num_boxes)
    return Task(f"sokoban-paper/{split}/{index}", TEXT, room, canonical_digest(room))


def make_panel(name: str, split: str, height: int = 6, width: int = 6, num_boxes: int = 1) -> TaskPanel[Room]:
    """One split of the panel of that name. Raises `ValueError` for an unknown one."""
    if name not in PANELS:
        raise ValueError(f"panel must be one of {', '.join(PANELS)}; got {name!r}")
    kind = SokobanPanel if name == "clean" else PaperPanel
    return kind(split, height, width, num_boxes)


def solution_lengths(panel: TaskPanel[Room], count: int) -> dict[int, int]:
    """The distribution of shortest solution lengths over the first `count` tasks: {moves: tasks}, sorted by moves.

    Raises `ValueError` for a task without a solution.
    """
    lengths: Counter[int] = Counter()
    for task in (panel[index] for index in range(count)):
        moves = distances(task.content).get(task.content.start)
        if moves is None:
            raise ValueError(f"{task.id} has no solution")
        lengths[moves] += 1
    return dict(sorted(lengths.items()))
