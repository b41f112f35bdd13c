"""Lists the games under a split's folder, once per process."""

from __future__ import annotations

import os
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE, family_of, read_json
from crbc_envs.errors import FileError

NOT_PLAYED = ("movable", "Sliced")
"""Tasks whose folder name contains one of these are left out, as in AlfredTWEnv."""

Stamp = tuple[int, int, int]
"""Time of change, size and number: what differs once a file, or a folder's list, changes."""


class Entry(NamedTuple):
    folder: Path
    family: str


class Listing(NamedTuple):
    entries: tuple[Entry, ...]
    """In order of their paths, independent of the file system."""
    left_out: dict[str, int]
    """The number of games left out, by reason."""


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file or folder. None if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=8)
def listing(folder: Path, stamp: Stamp | None) -> Listing:
    """Which games a split has, and which of them are played. `stamp` is that of the folder: another list is read anew.

    Raises `DataError` for a damaged file.
    """
    entries, left_out = [], Counter[str]()
    for path in trajectories(folder):
        entry = entry_of(folder, path)
        if isinstance(entry, Entry):
            entries.append(entry)
        else:
            left_out[entry] += 1
    return Listing(tuple(entries), dict(left_out))


def trajectories(folder: Path) -> list[Path]:
    """Every traj_data.json below a folder, in order of the paths. Follows no links."""
    walked = os.walk(folder, onerror=_unreadable)
    paths = [Path(at, TRAJECTORY_FILE) for at, _, names in walked if TRAJECTORY_FILE in names]
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def _unreadable(error: OSError) -> NoReturn:
    raise FileError(error.filename, f"this folder cannot be read: {error.strerror}") from error


def entry_of(folder: Path, trajectory: Path) -> Entry | str:
    """The entry of a game below a split's folder, or the reason why it is left out."""
    for word in NOT_PLAYED:
        if word in trajectory.relative_to(folder).as_posix():
            return word
    family = family_of(read_json(trajectory))
    game = trajectory.with_name(GAME_FILE)
    if family is None:
        return "another task type"
    if not game.exists():
        return "no game"
    if read_json(game).get("solvable") is not True:
        return "not solvable"
    return Entry(trajectory.parent, family)
