"""Sokoban's levels and task panels: rooms of the suite's own, and the boards of the paper's seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crbc_envs.sokoban.layouts import all_layouts
from crbc_envs.sokoban.published import paper_room
from crbc_envs.sokoban.rooms import empty_rooms
from crbc_envs.sokoban.rules import TARGET, Room, State, board_digest, layout_digest, placed
from crbc_envs.sokoban.solver import Starts
from crbc_envs.tasks import SPLITS, Task, TaskPanel

TEXT = "Push every box ($) onto a target (.)."

VERSION = 3
"""The version of the suite's own panel. It is increased whenever a room changes."""

PANELS = (f"v{VERSION}", "paper")

PANEL_SIZE = {"train": 100_000, "validation": 2_000, "test": 2_000}

SHARES = {"train": range(54), "validation": range(54, 77), "test": range(77, 100)}
"""The residues modulo 100 of a layout's digest, by split. At 6x6 with one box, 23 per cent are just over 2,000."""

MAX_SEARCHED = 1_000_000
"""The number of states, over all layouts of a task, after which a room of another length is accepted."""

PAPER_SIZE = {**PANEL_SIZE, "train": 2**16 - 1}

FIRST_SEED = {"train": 0, "validation": 2**16, "test": 2**16 + PAPER_SIZE["validation"]}
"""The seed of each split's first board. verl-agent uses training seeds below 2**16 - 1 and validation seeds from
2**16 on."""


# ---- levels ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Level:
    """Rooms of one size that take `shortest` to `longest` moves, in episodes of at most `max_steps` steps."""

    name: str
    height: int
    width: int
    num_boxes: int
    shortest: int
    longest: int
    max_steps: int

    @classmethod
    def of_size(cls, height: int = 6, width: int = 6, num_boxes: int = 1) -> Level:
        """Rooms of any size, eight different lengths, in episodes of fifteen steps. At 6x6 it is the level "6x6"."""
        name = f"{height}x{width}" + (f"x{num_boxes}" if num_boxes != 1 else "")
        level = cls(name, height, width, num_boxes, num_boxes, num_boxes + 7, 15)
        return LEVELS["6x6"] if level == LEVELS["6x6"] else level

    def length(self, index: int) -> int:
        """The moves that task `index` takes. Each length comes equally often, in every split."""
        return self.shortest + index % (self.longest - self.shortest + 1)


LEVELS = MappingProxyType(
    {
        level.name: level
        for level in (
            Level("6x6", 6, 6, 1, 1, 8, 15),
            Level("8x8-1box", 8, 8, 1, 5, 16, 30),
            Level("8x8-2box", 8, 8, 2, 9, 24, 50),
            Level("10x10-long", 10, 10, 2, 21, 50, 100),
        )
    }
)
"""The named levels. "6x6" is the paper's size. In each an episode has about twice the steps of the longest room."""


def find_level(
    name: str | None, height: int | None = None, width: int | None = None, num_boxes: int | None = None
) -> Level:
    """The level of that name, or of that size; "6x6" without either.

    Raises `ValueError` for an unknown name, and for a name together with another size.
    """
    sizes = {"height": height, "width": width, "num_boxes": num_boxes}
    given = {key: size for key, size in sizes.items() if size is not None}
    if name is None:
        return Level.of_size(**given)
    if name not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}; got {name!r}")
    level = LEVELS[name]
    for key, size in given.items():
        if size != getattr(level, key):
            raise ValueError(f"level {name!r} has {key} {getattr(level, key)}, got {size}: leave out one of the two")
    return level


# ---- the suite's panel -------------------------------------------------------------------------------


def split_of(layout: str) -> str:
    """The split that a layout belongs to, by its digest. It is the same in every level."""
    residue = int(layout, 16) % 100
    return next(split for split, share in SHARES.items() if residue in share)


class SokobanPanel(TaskPanel[Room]):
    """Generated rooms. A layout (walls and targets), in any orientation and place, is in one split only.

    A state has the layout of its start. So nothing that an episode of one split can reach is in an episode of
    another. No layout comes twice in the validation or test split of a named level. Task i of any split takes
    `level.length(i)` moves, so all lengths are equally frequent. A size that has no name may repeat rooms there, and
    has the nearest length where it has none.
    """

    has_kinds: ClassVar[bool] = False
    drawn_in_paper: ClassVar[Mapping[str, int]] = {"": 128}

    def __init__(self, split: str, level: Level = LEVELS["6x6"]) -> None:
        super().__init__(split, PANEL_SIZE.get(split, 0))
        self.level = level

    def _task(self, index: int) -> Task[Room]:
        return _panel_task(self.split, index, self.level)

    def cluster(self, task: Task[Room]) -> str:
        """The layout, up to rotation, reflection and shift."""
        return layout_digest(task.content)


@lru_cache(maxsize=4096)
def _panel_task(split: str, index: int, level: Level) -> Task[Room]:
    size = (level.height, level.width, level.num_boxes)
    rng = np.random.default_rng([VERSION, SPLITS.index(split), index, *size, level.shortest, level.longest])
    room = _listed(rng, split, index) if level == LEVELS["6x6"] else _drawn(rng, split, level, level.length(index))
    place = f"sokoban-v{VERSION}" + (f"/{level.name}" if level != LEVELS["6x6"] else "")
    return Task(f"{place}/{split}/{index}", TEXT, room, board_digest(room))


# ---- 6x6 with one box: all layouts are known ------------------------------------------------------


def _listed(rng: np.random.Generator, split: str, index: int) -> Room:
    """A room of a listed layout: a random one in training, elsewhere the next that no other task has."""
    level = LEVELS["6x6"]
    length = level.length(index)
    layouts = _layouts_by_length()[split][length]
    turn = int(rng.integers(len(layouts))) if split == "train" else index // (level.longest - level.shortest + 1)
    tiles = placed(all_layouts().tiles[layouts[turn]], rng).ravel()
    targets = frozenset(np.flatnonzero(tiles == TARGET).tolist())
    floor = frozenset(np.flatnonzero(tiles).tolist())
    return Starts(Room(level.height, level.width, floor, targets, State(-1, targets)), length).draw(rng, length)


@lru_cache(maxsize=1)
def _layouts_by_length() -> dict[str, dict[int, NDArray[np.intp]]]:
    """The numbers of each split's layouts, by the length of the rooms that are made of them.

    A training layout is in every length that it has. A held-out layout is in one: the longest lengths choose first,
    because few layouts have them.
    """
    level, listed = LEVELS["6x6"], all_layouts()
    splits = np.array([split_of(digest) for digest in listed.digests])
    lengths = range(level.longest, level.shortest - 1, -1)
    by_split = {"train": {n: np.flatnonzero((splits == "train") & listed.lengths[:, n]) for n in lengths}}
    for split in ("validation", "test"):
        left = splits == split
        by_split[split] = {}
        for length in lengths:
            chosen = np.flatnonzero(left & listed.lengths[:, length])[: PANEL_SIZE[split] // len(lengths)]
            left[chosen] = False
            by_split[split][length] = chosen
    return by_split


# ---- any other size: layouts are drawn ------------------------------------------------------------


def _drawn(rng: np.random.Generator, split: str, level: Level, target_length: int) -> Room:
    """A room of that length whose layout is in the split. The nearest length if there seems to be none."""
    height, width, num_boxes = level.height, level.width, level.num_boxes
    nearest: tuple[int, Room] | None = None
    searched = 0
    for layout in empty_rooms(rng, height, width, num_boxes):
        if split_of(layout_digest(layout)) != split:
            continue
        starts = Starts(layout, level.longest)
        searched += starts.searched
        for length in sorted(starts.of_length, key=lambda length: abs(length - target_length))[:1]:
            if nearest is None or abs(length - target_length) < nearest[0]:
                nearest = (abs(length - target_length), starts.draw(rng, length))
        if nearest and (nearest[0] == 0 or searched > MAX_SEARCHED):
            break
    if nearest is None:
        raise ValueError(f"{height}x{width} rooms with {num_boxes} boxes are too few to fill the {split} split")
    return nearest[1]


# ---- the paper's boards ---------------------------------------------------------------------------


class PaperPanel(TaskPanel[Room]):
    """The boards of verl-agent (`published.paper_room`), one seed after another.

    The splits share no seed, but they share boards: at 6x6 with one box, few boards are possible and fewer are
    likely. About 38 % of the validation boards are among the 4,800 boards of the paper's 150 updates of 32 tasks;
    counting mirror images, three in four. Success on this panel is therefore partly memory. It exists for comparison
    with published figures. `SokobanPanel` has no such leak. The solutions are also short: nearly half of the boards
    need at most three moves.
    """

    has_kinds: ClassVar[bool] = False
    drawn_in_paper: ClassVar[Mapping[str, int]] = {"": 128}

    def __init__(self, split: str, level: Level = LEVELS["6x6"]) -> None:
        super().__init__(split, PAPER_SIZE.get(split, 0))
        self.shape = (level.height, level.width, level.num_boxes)

    def _task(self, index: int) -> Task[Room]:
        return _paper_task(self.split, index, *self.shape)

    def cluster(self, task: Task[Room]) -> str:
        """The layout, up to rotation, reflection and shift."""
        return layout_digest(task.content)


@lru_cache(maxsize=4096)
def _paper_task(split: str, index: int, height: int, width: int, num_boxes: int) -> Task[Room]:
    room = paper_room(FIRST_SEED[split] + index, height, width, num_boxes)
    size = "" if (height, width, num_boxes) == (6, 6, 1) else f"{height}x{width}-{num_boxes}box/"
    return Task(f"sokoban-paper/{size}{split}/{index}", TEXT, room, board_digest(room))


def make_panel(name: str, split: str, level: Level = LEVELS["6x6"]) -> TaskPanel[Room]:
    """One split of the panel of that name. Raises `ValueError` for an unknown one."""
    if name not in PANELS:
        raise ValueError(f"panel must be one of {', '.join(PANELS)}; got {name!r}")
    return PaperPanel(split, level) if name == "paper" else SokobanPanel(split, level)
