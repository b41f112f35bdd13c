"""The published games: their installation and their task panels."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import ClassVar, NamedTuple, NoReturn

from crbc_envs.alfworld.engine.backends import shared_parse
from crbc_envs.alfworld.engine.dialect import split_task
from crbc_envs.alfworld.engine.game import (
    GAME_FILE,
    GET_DATA,
    TRAJECTORY_FILE,
    Check,
    GameFile,
    family_of,
    read_game_file,
    read_json,
)
from crbc_envs.errors import DataError, FileError
from crbc_envs.storage.datasets import MANIFEST, Dataset, Unpacked, check_file, read_manifest
from crbc_envs.tasks import Task, TaskPanel

SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")

PAPER = {"pick": 30, "clean": 19, "cool": 26, "look": 12, "heat": 21, "pick2": 20}
"""The tasks of each family among the paper's 128 validation trajectories. The paper does not state them. They follow
from its table of group sizes: all rates there are whole numbers of so many tasks, such as 7 of 19 for 36.84 %."""

_RECEPTACLE = re.compile(r"\(receptacletype\s+([^\s?]\S*)\s")
"""A fact of the problem; a goal names variables such as ?r instead."""

MOST_NAMED = 5
"""The most damaged games that a message names."""

NOT_PLAYED = ("movable", "Sliced")
"""Tasks whose folder name contains one of these are left out, as in AlfredTWEnv."""


class Entry(NamedTuple):
    folder: Path
    family: str


class Listing(NamedTuple):
    entries: tuple[Entry, ...]
    """In order of their paths, independent of the file system."""
    left_out: dict[str, int]
    """The number of games left out, by reason."""


def game_digest(game: GameFile) -> str:
    """The hash of a game (hex), without its walkthrough."""
    text = "\0".join((game.domain, game.grammar, game.problem))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def room_digest(game: GameFile) -> str:
    """The hash of the room that a game is played in (hex): of its receptacles, whose ids have their coordinates.

    In `valid_train` it tells apart exactly the 82 floor plans that the folders name.
    """
    receptacles = sorted(set(_RECEPTACLE.findall(game.problem.lower())))
    return hashlib.sha256("\n".join(receptacles).encode("utf-8", "surrogatepass")).hexdigest()


def task_of(id: str, game: GameFile) -> Task[GameFile]:
    """The task of a game. Raises a `DataError` that names a game without a task sentence."""
    try:
        task, _ = split_task(game.grammar)
    except DataError as error:
        raise FileError(game.name, str(error)) from error
    return Task(id, task, game, game_digest(game), game.family)


def load(id: str, folder: Path, check: Check = lambda path, content: None) -> Task[GameFile]:
    """Read a game's two files, each once, and parse it. Raises a `FileError` that names the file."""
    file = read_game_file(folder, check)
    try:
        shared_parse(file)
        return task_of(id, file)
    except FileError as error:  # it names the game by its last two folders
        raise FileError(folder / GAME_FILE, error.reason) from error


# ---- the games of a folder -------------------------------------------------------------------------


@lru_cache(maxsize=8)
def listing(folder: Path) -> Listing:
    """Which games a split has, and which of them are played. Raises `DataError` for a damaged file."""
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


# ---- the panel -------------------------------------------------------------------------------------


class OfficialPanel(TaskPanel[GameFile]):
    """The published games of a split, in order of their folders' paths, independent of the file system.

    `directory` holds the splits; the default is the installed data. The family comes from `task_type`, never
    from a folder's name. The panel leaves out what AlfredTWEnv leaves out: tasks with movable receptacles or
    sliced objects, and games that are missing or not solvable. `left_out` counts them; `families` counts the rest.

    All panels of a process share what they have read.

    Raises `DataError` at once if the data is missing or a file is no JSON, and for a task whose game is damaged or
    gone.
    """

    splits: ClassVar[Mapping[str, str]] = {
        **{name: name for name in SPLITS},
        "validation": "valid_seen",
        "test": "valid_unseen",
    }
    listed: ClassVar[bool] = True
    drawn_in_paper: ClassVar[Mapping[str, int]] = PAPER
    repeats_in_paper: ClassVar[bool] = True

    def __init__(self, split: str = "train", directory: str | Path | None = None) -> None:
        super().__init__(split, 0)
        self.directory = Path(directory).expanduser() if directory is not None else DATASET.folder
        self.folder = _split_folder(self.directory, self.split)
        listed = listing(self.folder)
        if not listed.entries:
            raise DataError(f"{self.folder}: holds no game; install the published games with: {DATASET.command}")
        self.entries, self.left_out = listed.entries, dict(listed.left_out)
        self.size = len(self.entries)
        self.families = Counter(entry.family for entry in self.entries)

    def _task(self, index: int) -> Task[GameFile]:
        folder = self.entries[index].folder
        return _loaded(f"alfworld-official/{self.split}/{index}", self.directory, folder, self._digests(folder))

    def find(self, name: str) -> int | None:
        """By the path of its game file or of its folder, of which the last two folders count."""
        folder = Path(name)
        last = (folder.parent if folder.suffix in (".tw-pddl", ".json") else folder).parts[-2:]
        found = [i for i, entry in enumerate(self.entries) if entry.folder.parts[-len(last) :] == last] if last else []
        return found[0] if len(found) == 1 else None

    def kind(self, index: int) -> str:
        return self.entries[self.index(index)].family

    def cluster(self, task: Task[GameFile]) -> str:
        """The room: games on one floor plan share furniture and ways."""
        return room_digest(task.content)

    def _digests(self, folder: Path) -> tuple[tuple[str, str], ...] | None:
        """What the manifest says of a game's files, by path. None if the games were not installed."""
        if not (self.directory / MANIFEST).exists():
            return None
        names = [(folder / name).relative_to(self.directory).as_posix() for name in (GAME_FILE, TRAJECTORY_FILE)]
        known = _manifest(self.directory)
        return tuple((name, known[name]) for name in names if name in known)


@lru_cache(maxsize=64)
def _loaded(id: str, directory: Path, folder: Path, digests: tuple[tuple[str, str], ...] | None) -> Task[GameFile]:
    """A task, read once per process for all copies of a group."""

    def check(path: Path, content: bytes) -> None:
        if digests is not None:
            check_file(directory, path, dict(digests), content)

    return load(id, folder, check)


@lru_cache(maxsize=8)
def _manifest(directory: Path) -> Mapping[str, str]:
    return read_manifest(directory)


def _split_folder(directory: Path, split: str) -> Path:
    """The split's folder, in `directory` or in the subfolder that ALFWorld's download makes."""
    for folder in (directory / split, directory / "json_2.1.1" / split):
        if folder.is_dir():
            return folder
    raise DataError(f"{directory / split}: no such folder; install the published games with: {DATASET.command}")


# ---- installing ------------------------------------------------------------------------------------


def _place(path: PurePosixPath) -> PurePosixPath | None:
    """SPLIT/TASK/TRIAL/FILE, for any folder above it in the source."""
    kept = PurePosixPath(*path.parts[-4:])
    fits = len(kept.parts) == 4 and kept.parts[0] in SPLITS and kept.name in (GAME_FILE, TRAJECTORY_FILE)
    return kept if fits else None


def _check(unpacked: Unpacked) -> str:
    """Play none, but parse every game that is played. Returns the number of games of each split.

    Raises `DataError` for a game without a trajectory, and one that names the games that are damaged.
    """
    for path in sorted(unpacked.folder.rglob(GAME_FILE)):
        if not (path.parent / TRAJECTORY_FILE).exists():
            raise DataError(
                f"{unpacked.origin(path)}: its {TRAJECTORY_FILE} is missing; ALFWorld publishes the two in "
                f"separate archives, so give both: crbc data alfworld --from GAMES.zip TRAJECTORIES.zip"
            )
    folders = [unpacked.folder / split for split in SPLITS if (unpacked.folder / split).is_dir()]
    paths = [(folder, path) for folder in folders for path in trajectories(folder)]
    counts = {folder.name: Counter[str]() for folder in folders}
    faults = []
    for done, (folder, path) in enumerate(paths, start=1):
        try:
            entry = entry_of(folder, path)
            if isinstance(entry, Entry):
                load("", entry.folder)
            counts[folder.name][entry if isinstance(entry, str) else ""] += 1
        except FileError as error:
            faults.append(f"{unpacked.origin(Path(error.path))}: {error.reason.removesuffix(GET_DATA).strip()}")
        unpacked.on_progress(done, len(paths))
    if faults:
        more = f"; and {len(faults) - MOST_NAMED:,} more" if len(faults) > MOST_NAMED else ""
        raise DataError(
            f"{len(faults):,} of {len(paths):,} games cannot be played: {'; '.join(faults[:MOST_NAMED])}{more}. "
            f"Get these files again, or leave them out: {DATASET.command}"
        )
    return "; ".join(_counted(unpacked, split, Counter(reasons)) for split, reasons in counts.items())


def _counted(unpacked: Unpacked, split: str, reasons: Counter[str]) -> str:
    """The number of games of a split and of those left out, in words. Raises `DataError` if none is played."""
    played = reasons.pop("", 0)
    without = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    left_out = f" (left out: {without})" if without else ""
    if not played:
        raise DataError(f"{unpacked.sources}: {split} holds no game that is played{left_out}")
    return f"{split} {played:,} games{left_out}"


DATASET = Dataset(
    name="alfworld",
    place=_place,
    check=_check,
    required=f"ALFWorld's games, as {{{','.join(SPLITS)}}}/TASK/TRIAL/{{{GAME_FILE},{TRAJECTORY_FILE}}}",
    limit=16 * 2**30,
)
"""ALFWorld's published games. Several archives are installed together: `--from A.zip B.zip`."""
