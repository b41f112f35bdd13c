"""ALFWorld's task panels: generated households and the published games."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from crbc_envs.alfworld.engine.game import FAMILIES, GameFile
from crbc_envs.alfworld.games.generate import VERBS, Verb, draw_puzzle, fits, game_file
from crbc_envs.alfworld.games.goal_counts import Asked, counts, even_share
from crbc_envs.alfworld.games.household import ROOMS, SIZES, Layout, Size, draw_layout
from crbc_envs.alfworld.games.official import PAPER, OfficialPanel, room_digest, task_of
from crbc_envs.tasks import Task, TaskPanel, stream

DATA = ("generated", "official")

PANEL_VERSION = 2
"""The version of the generated panel. It is increased whenever a task changes."""

PANEL_SIZE = {"train": 100_000, "valid_seen": 2_000, "valid_unseen": 2_000}

ROOMS_OF_A_KIND = {"seen": 500, "unseen": 125}
"""The number of rooms of each kind. `train` and `valid_seen` use the same rooms."""

UNSEEN_FURNITURE = (8, 9)
"""Residues modulo 10 of the digest of a room's furniture. Rooms with these are reserved for `valid_unseen`."""

KEPT = 0
"""The residue modulo 4 of the digest of a room and a goal. Those with it are for `valid_seen`, not for training."""

MOST_ROOMS = 1_000
"""After so many rooms in which a goal cannot be reached, another goal is drawn. Some furniture is rare."""


class AlfworldPanel(TaskPanel[GameFile]):
    """Generated games. The six families alternate; within a family, goals come as often as in the published tasks.

    `valid_seen` uses the rooms of `train`, but no goal that `train` has in a room with this furniture. `valid_unseen`
    uses rooms with furniture that no room of `train` has.

    `rooms` is "full" (as large as the published ones) or "small". `verb` selects the wording of the game.
    """

    splits: ClassVar[Mapping[str, str]] = {
        **{name: name for name in PANEL_SIZE},
        "validation": "valid_seen",
        "test": "valid_unseen",
    }
    drawn_in_paper: ClassVar[Mapping[str, int]] = PAPER
    repeats_in_paper: ClassVar[bool] = True

    def __init__(self, split: str = "train", rooms: Size = "full", verb: Verb = "move") -> None:
        super().__init__(split, PANEL_SIZE.get(self.splits.get(split, ""), 0))
        for value, known in ((rooms, SIZES), (verb, VERBS)):
            if value not in known:
                raise ValueError(f"{value!r} is not one of {', '.join(known)}")
        self.rooms: Size = rooms
        self.verb: Verb = verb

    def _task(self, index: int) -> Task[GameFile]:
        return _generated(self.split, index, self.rooms, self.verb)

    def kind(self, index: int) -> str:
        return tuple(FAMILIES.values())[self.index(index) % len(FAMILIES)]

    def cluster(self, task: Task[GameFile]) -> str:
        """The room: games in it share furniture and ways."""
        return room_digest(task.content)


@lru_cache(maxsize=256)
def _generated(split: str, index: int, rooms: Size, verb: Verb) -> Task[GameFile]:
    number, place = divmod(index, len(FAMILIES))
    family = tuple(FAMILIES.values())[place]
    rng = np.random.default_rng([PANEL_VERSION, list(PANEL_SIZE).index(split), index, SIZES.index(rooms)])
    goals = counts(family)
    asked = goals.at(even_share(stream(f"alfworld/{split}/{family}"), number))
    while (layout := _room_for(rng, split, asked, rooms)) is None:
        asked = goals.draw(rng)
    id = f"alfworld{'-small' * (rooms == 'small')}-v{PANEL_VERSION}/{split}/{index}"
    return task_of(id, game_file(rng, draw_puzzle(rng, layout, asked.goal), verb))


def _room_for(rng: np.random.Generator, split: str, asked: Asked, rooms: Size) -> Layout | None:
    """A room of the split for a goal; None if it is hard to find."""
    pool = "unseen" if split == "valid_unseen" else "seen"
    for number in rng.integers(ROOMS_OF_A_KIND[pool], size=MOST_ROOMS):
        furniture = _furniture(pool, asked.room, int(number), rooms)
        if fits(furniture, asked.goal) and (pool == "unseen" or _kept(furniture, asked) == (split == "valid_seen")):
            return panel_layout(pool, asked.room, int(number), rooms)
    return None


def _kept(furniture: tuple[str, ...], asked: Asked) -> bool:
    """Whether a goal in a room is for `valid_seen`. Rooms with the same furniture are the same here."""
    return int(hashlib.sha256(f"{asked} {furniture}".encode()).hexdigest(), 16) % 4 == KEPT


@lru_cache(maxsize=8192)
def _furniture(pool: str, room: str, number: int, rooms: Size) -> tuple[str, ...]:
    return panel_layout(pool, room, number, rooms).furniture  # remembered apart, since a layout is forty times as large


@lru_cache(maxsize=1024)
def panel_layout(pool: str, room: str, number: int, rooms: Size) -> Layout:
    """Room `number` of a kind, from the rooms used in training ("seen") or from the others ("unseen")."""
    pools = tuple(ROOMS_OF_A_KIND)
    rng = np.random.default_rng([2, pools.index(pool), ROOMS.index(room), number, SIZES.index(rooms)])
    while True:
        layout = draw_layout(rng, room, rooms)
        residue = int(hashlib.sha256(" ".join(layout.furniture).encode()).hexdigest(), 16) % 10
        if (residue in UNSEEN_FURNITURE) == (pool == "unseen"):
            return layout


def make_panel(
    data: Literal["generated", "official"],
    split: str,
    rooms: Size = "full",
    verb: Verb = "move",
    directory: str | Path | None = None,
) -> TaskPanel[GameFile]:
    """One split of generated or published games. `rooms` and `verb` apply to generated games only.

    Raises `ValueError` for unknown data, for a `directory` beside generated games, and for `rooms` or `verb` beside the
    published ones; `DataError` if those are missing.
    """
    if data not in DATA:
        raise ValueError(f"data must be one of {', '.join(DATA)}; got {data!r}")
    if data == "official" and (rooms, verb) != ("full", "move"):
        raise ValueError("rooms and verb are of generated games: leave both out, or set rooms to full and verb to move")
    if data == "generated" and directory is not None:
        raise ValueError("data_dir is the folder of the published games: give data='official' too")
    return AlfworldPanel(split, rooms, verb) if data == "generated" else OfficialPanel(split, directory)
