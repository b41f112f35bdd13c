"""What a run writes in its folder. Training writes through no link there, unless that is asked for."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from crbc_envs.errors import DataError
from crbc_envs.storage.files import LEFT_FILE, LEFT_FOLDER, refuse_link

LOG = "train.log"
"""What a run says that another process started."""

NAMES = (
    ".lock",
    "best",
    "checkpoints",
    "config.yaml",
    "groups.jsonl",
    "metrics.jsonl",
    "model",
    "outcomes.jsonl",
    "report.html",
    "rollouts",
    "tensorboard",
    "tracking.json",
    LOG,
    "versions.json",
)
"""What a run writes. Other files in its folder are left alone."""
_KEPT = "|".join(map(re.escape, sorted({*NAMES} - {"report.html"})))  # a reader may be writing a report
_LEFT = re.compile(rf"\.({_KEPT}|[0-9]{{6,9}}\.parquet)\.({LEFT_FILE}|{LEFT_FOLDER})")
"""What a killed process leaves of the files and folders that it was replacing."""


def require_own(folder: Path, follow_links: bool = False) -> None:
    """Check what training writes in a run's folder, which may itself be a link.

    Raises `DataError` for a link: the run would be written elsewhere. With `follow_links` a link may lead to a folder
    on another disk.
    """
    for path in (folder / name for name in NAMES):
        if path.is_symlink() and path.is_dir():
            if not follow_links:
                raise DataError(
                    f"{path} is a link to {path.readlink()}: add --follow-links to write there, or remove it"
                )
        else:
            refuse_link(path)


def clear_leftovers(folder: Path) -> None:
    """Delete what killed processes left in a run's folder. Rank 0 calls this with the lock, before anybody writes."""
    for place in (folder, folder / "rollouts"):
        for left in place.glob(".*.tmp"):
            if _LEFT.fullmatch(left.name) and not left.is_symlink():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
