"""The published games: their installation and their task panels."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import ClassVar, NamedTuple

from crbc_envs.alfworld.engine.dialect import split_task
from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE, GameFile, family_of, read_game_file, read_json
from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import MANIFEST, Dataset, check_file, read_manifest
from crbc_envs.tasks import Task, TaskPanel

SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")

NOT_PLAYED = ("movable", "Sliced")
"""Tasks whose folder name contains one of these are left out, as in AlfredTWEnv."""


class Entry(NamedTuple):
    folder: Path
    family: str


def game_digest(game: GameFile) -> str:
    """The hash of a game (hex), without its walkthrough."""
    return hashlib.sha256("\0".join((game.domain, game.grammar, game.problem)).encode()).hexdigest()


def task_of(id: str, game: GameFile) -> Task[GameFile]:
    """The task of a game. Raises a `DataError` that names a game without a task sentence."""
    try:
        task, _ = split_task(game.grammar)
    except DataError as error:
        raise DataError(f"{game.name}: {error}") from error
    return Task(id, task, game, game_digest(game), game.family)


class OfficialPanel(TaskPanel[GameFile]):
    """The published games of a split, in order of their folders' paths, independent of the file system.

    `directory` holds the splits; the default is the installed data. The family comes from `task_type`, never
    from a folder's name. The panel leaves out what AlfredTWEnv leaves out: tasks with movable receptacles or
    sliced objects, and games that are missing or not solvable. `left_out` counts them; `families` counts the rest.

    Raises `DataError` at once if the data is missing or a game is damaged.
    """

    splits: ClassVar[Mapping[str, str]] = {
        **{name: name for name in SPLITS},
        "validation": "valid_seen",
        "test": "valid_unseen",
    }

    def __init__(self, split: str = "train", directory: str | Path | None = None) -> None:
        super().__init__(split, 0)
        self.directory = Path(directory).expanduser() if directory is not None else DATASET.folder
        self.entries, left_out = _scan_once(_split_folder(self.directory, self.split))
        self.left_out = dict(left_out)
        self.size = len(self.entries)
        self.families = Counter(entry.family for entry in self.entries)
        installed = (self.directory / MANIFEST).exists()
        self._digests = read_manifest(self.directory) if installed else None

    def _task(self, index: int) -> Task[GameFile]:
        folder = self.entries[index].folder
        if self._digests is not None:
            for name in (GAME_FILE, TRAJECTORY_FILE):
                check_file(self.directory, folder / name, self._digests)
        return task_of(f"alfworld-official/{self.split}/{index}", read_game_file(folder))


def _split_folder(directory: Path, split: str) -> Path:
    """The split's folder, in `directory` or in the subfolder that ALFWorld's download makes."""
    for folder in (directory / split, directory / "json_2.1.1" / split):
        if folder.is_dir():
            return folder
    raise DataError(f"{directory / split}: no such folder; install the published games with: {DATASET.command}")


def scan(folder: Path) -> tuple[tuple[Entry, ...], dict[str, int]]:
    """The games under a split's folder, and the number left out by reason. Raises `DataError` if there is no game."""
    entries, left_out = [], Counter[str]()
    for path in sorted(folder.rglob(TRAJECTORY_FILE), key=lambda path: path.relative_to(folder).as_posix()):
        found = _entry(path, path.relative_to(folder).as_posix())
        if isinstance(found, Entry):
            entries.append(found)
        else:
            left_out[found] += 1
    if not entries:
        raise DataError(f"{folder}: holds no game; install the published games with: {DATASET.command}")
    return tuple(entries), dict(left_out)


_scan_once = lru_cache(maxsize=8)(scan)
"""Scans each split once per process, for any number of environments."""


def _entry(trajectory: Path, name: str) -> Entry | str:
    """The entry of a game, or the reason why it is left out."""
    for word in NOT_PLAYED:
        if word in name:
            return word
    family = family_of(read_json(trajectory))
    game = trajectory.with_name(GAME_FILE)
    if family is None:
        return "another task type"
    if not game.exists():
        return "no game"
    return Entry(trajectory.parent, family) if read_json(game).get("solvable") is True else "not solvable"


# ---- installing ------------------------------------------------------------------------------------


def _place(path: PurePosixPath) -> PurePosixPath | None:
    """SPLIT/TASK/TRIAL/FILE, for any folder above it in the source."""
    kept = PurePosixPath(*path.parts[-4:])
    fits = len(kept.parts) == 4 and kept.parts[0] in SPLITS and kept.name in (GAME_FILE, TRAJECTORY_FILE)
    return kept if fits else None


def _check(directory: Path) -> str:
    """The number of games of each split. Raises `DataError` for a game without a trajectory, or a damaged one."""
    for path in sorted(directory.rglob(GAME_FILE)):
        if not (path.parent / TRAJECTORY_FILE).exists():
            raise DataError(
                f"{path.relative_to(directory)}: its {TRAJECTORY_FILE} is missing; ALFWorld publishes the two in "
                f"separate archives, so give both: crbc data alfworld --from GAMES.zip TRAJECTORIES.zip"
            )
    found = []
    for split in SPLITS:
        if (directory / split).is_dir():
            entries, left_out = scan(directory / split)
            without = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
            found.append(f"{split} {len(entries):,} games" + (f" (left out: {without})" if without else ""))
    return "; ".join(found)


DATASET = Dataset(
    name="alfworld",
    place=_place,
    check=_check,
    required=f"ALFWorld's games, as {{{','.join(SPLITS)}}}/TASK/TRIAL/{{{GAME_FILE},{TRAJECTORY_FILE}}}",
    limit=16 * 2**30,
)
"""ALFWorld's published games. Several archives are installed together: `--from A.zip B.zip`."""
