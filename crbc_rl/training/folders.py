"""The folders of checkpoints: one per saved update, written whole or not at all, and deleted when newer ones are there.

A manifest has the digest of each file, so that a damaged checkpoint is noticed, and says that the folder is a
checkpoint of that update. Only a folder that says so is ever deleted. What a checkpoint holds is not known here: who
looks at a run alone waits for no torch.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from crbc_envs.storage.files import WriteErrors, replacing_folder
from crbc_rl.errors import ConfigError
from crbc_rl.training.files import MANIFEST, damage, files_of, read_mark, synced_digests, write_manifest

if TYPE_CHECKING:
    from crbc_rl.distributed import Distributed

log = logging.getLogger(__name__)

_NAME = re.compile("[0-9]{6}|[1-9][0-9]{6,}")


def publish(
    folder: Path,
    update: int,
    write: Callable[[Path], None],
    keep: int,
    distributed: Distributed | None = None,
    behind: int | None = None,
) -> Path:
    """Let `write` fill a temporary folder, rename it to FOLDER/<update>, and `retire` others.

    Folders of later updates are deleted too: training went back behind them. Only what this function has published is
    deleted. With several ranks all of them call this, and each may write its own files; one run at a time writes to a
    folder. Returns the folder. Raises `OSError` naming it, and then leaves the others alone.
    """
    from crbc_rl.distributed import Distributed

    distributed = distributed or Distributed()
    target = folder / f"{update:06d}"
    with WriteErrors(target), ExitStack() as swap:
        fresh = target
        if distributed.main:
            folder.mkdir(parents=True, exist_ok=True)
            fresh = swap.enter_context(replacing_folder(target))
        fresh = folder / distributed.gather(fresh.relative_to(folder).as_posix())[0]
        write(fresh)
        distributed.barrier()
        files = distributed.gather(files_of(fresh))[0]  # of which each rank reads its share
        shares = distributed.gather(synced_digests(fresh, files[distributed.rank :: distributed.size]))
        if distributed.main:
            write_manifest(fresh, _mark(update), {name: digest for share in shares for name, digest in share.items()})
            if target.exists() and not _ours(target):
                _set_aside(target)
    if distributed.main:
        retire(folder, update, keep, behind)
    distributed.barrier()
    return target


def _mark(update: int) -> dict[str, str | int]:
    return {"crbc": "checkpoint", "update": update}


def _ours(place: Path) -> bool:
    """Whether `publish` made a folder, under the name that it has."""
    return bool(_NAME.fullmatch(place.name)) and read_mark(place) == _mark(int(place.name))


def retire(folder: Path, update: int, keep: int, behind: int | None = None) -> None:
    """Delete all checkpoints but the `keep` newest up to `update`, and the newest up to `behind`."""
    ours = [place for place in published(folder) if _ours(place)]
    kept = [place for place in ours if int(place.name) <= update][-keep:]
    kept += [place for place in ours if behind is not None and int(place.name) <= behind][-1:]
    for old in ours:
        if old not in kept:
            shutil.rmtree(old)


def _set_aside(place: Path) -> None:
    """Rename a folder that is in the way, and that somebody else made."""
    kept = place.with_name(f"{place.name}-kept-{token_hex(4)}")
    place.rename(kept)
    log.warning("%s has no mark of a checkpoint; it is kept as %s", place, kept.name)


def published(folder: Path) -> list[Path]:
    """The checkpoints by update, oldest first: folders named for their update which say so in their manifest, or whose
    manifest is damaged."""
    named = (place for place in folder.glob("[0-9]*") if _NAME.fullmatch(place.name) and not place.is_symlink())
    there = (place for place in named if (place / MANIFEST).is_file())
    ours = (place for place in there if read_mark(place) in ({}, _mark(int(place.name))))
    return sorted(ours, key=lambda place: int(place.name))


def newest(folder: Path) -> Path | None:
    """The newest published folder whose files are as they were written; None where there is no folder.

    A warning names newer ones that are damaged. Raises `ConfigError` where all are.
    """
    wrong: list[str] = []
    for place in reversed(published(folder)):
        reason = damage(place)
        if reason is None:
            if wrong:
                log.warning("%s: %s; going on with %s instead", folder, ", ".join(wrong[:3]), place.name)
            return place
        wrong.append(f"{place.name} ({reason})")
    if wrong:
        raise ConfigError(
            f"{folder} has no undamaged checkpoint: {', '.join(wrong[:3])}; restore one from a backup, or begin "
            "another run with crbc train CONFIG --run DIR"
        )
    return None
