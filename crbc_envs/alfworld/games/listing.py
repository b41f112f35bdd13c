"""Lists the games under a split's folder once per process, and again when something there has changed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE, family_of, read_json
from crbc_envs.errors import FileError

NOT_PLAYED = ("movable", "Sliced")
"""Tasks whose folder name contains one of these are left out, as in AlfredTWEnv."""

MOST_KNOWN = 8
"""The most splits whose lists a process keeps."""

Stamp = tuple[int, int, int, int]
"""Time of change by content and by status, size and number: what differs once a file, or a folder's list, changes."""

Stamps = tuple[Stamp | None, ...]


class Entry(NamedTuple):
    folder: Path
    family: str
    stamps: Stamps
    """Those of its two files, taken before they were read."""


class Listing(NamedTuple):
    entries: tuple[Entry, ...]
    """In order of their paths, independent of the file system."""
    left_out: dict[str, int]
    """The number of games left out, by reason."""
    stamps: dict[str, Stamp | None]
    """Those of all folders, and of the files for which a game was left out. A game's own are in its entry."""

    def is_current(self) -> bool:
        """Whether no game has come or gone. It takes a stat a folder, which for 3,553 games is 30 ms."""
        return all(stamp_of(path) == stamp for path, stamp in self.stamps.items())


_known: dict[Path, Listing] = {}


def listing(folder: Path) -> Listing:
    """The games of a split, from memory as long as that is current. Raises `DataError` for a damaged file."""
    listing = _known.pop(folder, None)
    if listing is None or not listing.is_current():
        listing = scan(folder)
    if len(_known) >= MOST_KNOWN:
        del _known[next(iter(_known))]
    _known[folder] = listing
    return listing


def forget(folder: Path) -> None:
    """Make the next `listing` of the folder read it anew."""
    _known.pop(folder, None)


def stamp_of(path: str | Path) -> Stamp | None:
    """The stamp of a file or folder. None if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def stamps_of(folder: Path) -> Stamps:
    """The stamps of a game's two files."""
    return stamp_of(folder / GAME_FILE), stamp_of(folder / TRAJECTORY_FILE)


def scan(folder: Path) -> Listing:
    """Read which games a split has, and which of them are played."""
    paths, stamps = trajectories(folder)
    entries, left_out = [], Counter[str]()
    for path in paths:
        before = stamps_of(path.parent)
        entry = entry_of(folder, path)
        if isinstance(entry, Entry):
            entries.append(entry)
            continue
        left_out[entry] += 1
        if entry not in NOT_PLAYED:  # else the folder's name is the reason
            stamps.update(zip((str(path.with_name(GAME_FILE)), str(path)), before, strict=True))
    return Listing(tuple(entries), dict(left_out), stamps)


def trajectories(folder: Path) -> tuple[list[Path], dict[str, Stamp | None]]:
    """Every traj_data.json below a folder, in order of the paths, and the stamp of every folder. Follows no links."""
    paths: list[Path] = []
    stamps: dict[str, Stamp | None] = {}
    waiting = [str(folder)]
    while waiting:
        at = waiting.pop()
        stamps[at] = stamp_of(at)  # before it is listed
        try:
            with os.scandir(at) as children:
                for entry in children:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name == TRAJECTORY_FILE:
                        paths.append(Path(entry.path))
        except OSError as error:
            raise FileError(at, f"this folder cannot be read: {error.strerror}") from error
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix()), stamps


def entry_of(folder: Path, trajectory: Path) -> Entry | str:
    """The entry of a game below a split's folder, or the reason why it is left out."""
    stamps = stamps_of(trajectory.parent)
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
    return Entry(trajectory.parent, family, stamps)
