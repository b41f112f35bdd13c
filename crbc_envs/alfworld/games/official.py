"""The published games: how they are installed, and the panels they make."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import ClassVar, NamedTuple

from crbc_envs.alfworld.engine.dialect import TASK
from crbc_envs.alfworld.engine.game import FAMILIES, GAME_FILE, TRAJECTORY_FILE, GameFile, read_game_file, read_json
from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import MANIFEST, Dataset, check_file, read_manifest
from crbc_envs.tasks import Task, TaskPanel

SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")

NOT_PLAYED = ("movable", "Sliced")
"""Tasks whose folder's name holds one of these are left out, as AlfredTWEnv leaves them out."""


class Entry(NamedTuple):
    folder: Path
    family: str


def game_digest(game: GameFile) -> str:
    """The hash of what is played (hex); the walkthrough is no part of it."""
    return hashlib.sha256("\0".join((game.domain, game.grammar, game.problem)).encode()).hexdigest()


def task_of(id: str, game: GameFile) -> Task[GameFile]:
    """Raises `DataError` for a game without a task sentence."""
    found = TASK.search(game.grammar)
    if found is None:
        raise DataError(f'{game.name}: the grammar has no sentence "Your task is to: ..."')
    return Task(id, json.loads(f'"{found[1]}"'), game, game_digest(game), game.family)


class OfficialPanel(TaskPanel[GameFile]):
    """The published games of a split, in order of their folders' paths, whatever the file system's order.

    `directory` holds the splits; the installed data unless given. Families go by `task_type`, never by a
    folder's name. Left out is what AlfredTWEnv leaves out: tasks with movable receptacles or sliced
    objects, and games that are missing or not solvable; `left_out` counts them, `families` the rest.

    Raises `DataError` at once where the data is missing or a game is damaged.
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
    """The split's folder, in `directory` or in the folder ALFWorld's own download makes there."""
    for folder in (directory / split, directory / "json_2.1.1" / split):
        if folder.is_dir():
            return folder
    raise DataError(f"{directory / split}: no such folder; put the published games in place with: {DATASET.command}")


def scan(folder: Path) -> tuple[tuple[Entry, ...], dict[str, int]]:
    """The games under a split's folder, and how many are left out, by reason. Raises `DataError` if there is none."""
    entries, left_out = [], Counter[str]()
    for path in sorted(folder.rglob(TRAJECTORY_FILE), key=lambda path: path.relative_to(folder).as_posix()):
        found = _look_at(path, path.relative_to(folder).as_posix())
        if isinstance(found, Entry):
            entries.append(found)
        else:
            left_out[found] += 1
    if not entries:
        raise DataError(f"{folder}: holds no game; put the published games in place with: {DATASET.command}")
    return tuple(entries), dict(left_out)


_scan_once = lru_cache(maxsize=8)(scan)
"""A split is looked through once in a process, however many environments play it."""


def _look_at(trajectory: Path, name: str) -> Entry | str:
    """A game, or why it is not played."""
    for word in NOT_PLAYED:
        if word in name:
            return word
    family = FAMILIES.get(str(read_json(trajectory).get("task_type")))
    game = trajectory.with_name(GAME_FILE)
    if family is None:
        return "another task type"
    if not game.exists():
        return "no game"
    return Entry(trajectory.parent, family) if read_json(game).get("solvable") else "not solvable"


# ---- installing ------------------------------------------------------------------------------------


def _place(path: PurePosixPath) -> PurePosixPath | None:
    """SPLIT/TASK/TRIAL/FILE, wherever a source has it."""
    kept = PurePosixPath(*path.parts[-4:])
    fits = len(kept.parts) == 4 and kept.parts[0] in SPLITS and kept.name in (GAME_FILE, TRAJECTORY_FILE)
    return kept if fits else None


def _check(directory: Path) -> str:
    """How many games each split has. Raises `DataError` for one without a trajectory, or damaged."""
    for path in sorted(directory.rglob(GAME_FILE)):
        if not (path.parent / TRAJECTORY_FILE).exists():
            raise DataError(
                f"{path.relative_to(directory)}: its {TRAJECTORY_FILE} is missing; ALFWorld publishes the two in "
                f"archives of their own, so give both: crbc data alfworld --from GAMES.zip TRAJECTORIES.zip"
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
