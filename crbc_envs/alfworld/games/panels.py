"""ALFWorld's task panels: generated households and the published games."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from crbc_envs.alfworld.engine.game import FAMILIES, GameFile
from crbc_envs.alfworld.games.generate import ROOMS_OF, VERBS, Verb, draw_puzzle, game_file, goals
from crbc_envs.alfworld.games.household import SIZES, Layout, Size, draw_layout, pick
from crbc_envs.alfworld.games.official import OfficialPanel, task_of
from crbc_envs.alfworld.games.tables import ROOMS
from crbc_envs.tasks import Task, TaskPanel

DATA = ("generated", "official")

PANEL_SIZE = {"train": 100_000, "valid_seen": 2_000, "valid_unseen": 2_000}

ROOMS_OF_A_KIND = {"seen": 500, "unseen": 125}
"""The number of rooms of each kind. `train` and `valid_seen` use the same rooms."""

UNSEEN_FURNITURE = (8, 9)
"""Residues modulo 10 of the digest of a room's furniture. Rooms with these are reserved for `valid_unseen`."""

SEEN_PUZZLES = 0
"""The residue modulo 4 of a puzzle's digest. Puzzles with it are reserved for `valid_seen`, not for training."""


class AlfworldPanel(TaskPanel[GameFile]):
    """Generated games. The six families alternate.

    `valid_seen` uses the rooms of `train`, with other things and tasks. `valid_unseen` uses rooms with furniture
    that no room of `train` has. No two splits share a puzzle, where names and wording do not count.

    `rooms` is "full" (as large as the published ones) or "small". `verb` selects the wording of the game.
    """

    splits: ClassVar[Mapping[str, str]] = {
        **{name: name for name in PANEL_SIZE},
        "validation": "valid_seen",
        "test": "valid_unseen",
    }

    def __init__(self, split: str = "train", rooms: Size = "full", verb: Verb = "move") -> None:
        super().__init__(split, PANEL_SIZE.get(self.splits.get(split, ""), 0))
        for value, known in ((rooms, SIZES), (verb, VERBS)):
            if value not in known:
                raise ValueError(f"{value!r} is not one of {', '.join(known)}")
        self.rooms: Size = rooms
        self.verb: Verb = verb

    def _task(self, index: int) -> Task[GameFile]:
        return _generated(self.split, index, self.rooms, self.verb)


@lru_cache(maxsize=256)
def _generated(split: str, index: int, rooms: Size, verb: Verb) -> Task[GameFile]:
    family = tuple(FAMILIES.values())[index % len(FAMILIES)]
    pool = "unseen" if split == "valid_unseen" else "seen"
    rng = np.random.default_rng([1, list(PANEL_SIZE).index(split), index, SIZES.index(rooms)])
    room = pick(rng, ROOMS_OF[family])
    while True:
        layout = panel_layout(pool, room, int(rng.integers(ROOMS_OF_A_KIND[pool])), rooms)
        if not goals(layout, family):
            continue
        puzzle = draw_puzzle(rng, layout, family)
        kept = int(puzzle.digest(), 16) % 4 == SEEN_PUZZLES
        if pool == "unseen" or kept == (split == "valid_seen"):
            id = f"alfworld{'-small' * (rooms == 'small')}/{split}/{index}"
            return task_of(id, game_file(rng, puzzle, verb))


@lru_cache(maxsize=1024)
def panel_layout(pool: str, room: str, number: int, rooms: Size) -> Layout:
    """Room `number` of a kind, from the rooms used in training ("seen") or from the others ("unseen")."""
    pools = tuple(ROOMS_OF_A_KIND)
    rng = np.random.default_rng([2, pools.index(pool), ROOMS.index(room), number, SIZES.index(rooms)])
    while True:
        layout = draw_layout(rng, room, rooms)
        if (_furniture_residue(layout) in UNSEEN_FURNITURE) == (pool == "unseen"):
            return layout


def _furniture_residue(layout: Layout) -> int:
    return int(hashlib.sha256(" ".join(layout.furniture).encode()).hexdigest(), 16) % 10


def make_panel(
    data: Literal["generated", "official"],
    split: str,
    rooms: Size = "full",
    verb: Verb = "move",
    directory: str | Path | None = None,
) -> TaskPanel[GameFile]:
    """One split of generated or published games. `rooms` and `verb` apply to generated games only.

    Raises `ValueError` for unknown data, and `DataError` if the published games are missing.
    """
    if data not in DATA:
        raise ValueError(f"data must be one of {', '.join(DATA)}; got {data!r}")
    return AlfworldPanel(split, rooms, verb) if data == "generated" else OfficialPanel(split, directory)
