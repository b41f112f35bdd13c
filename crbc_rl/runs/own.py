"""A run folder may come from somebody else: nothing in it leads out of it, and every file in it has an end."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from crbc_envs.storage.files import LEFT_FILE, LEFT_FOLDER, refuse_link
from crbc_rl.errors import ConfigError

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
"""What a run writes and reads. Other files in its folder are left alone."""
_KEPT = "|".join(map(re.escape, sorted({*NAMES} - {"report.html"})))  # a reader may be writing a report
_LEFT = re.compile(rf"\.({_KEPT}|[0-9]{{6,9}}\.parquet)\.({LEFT_FILE}|{LEFT_FOLDER})")
"""What a killed process leaves of the files and folders that it was replacing."""


def require_own(folder: Path) -> None:
    """Check that everything of a run is a file or a folder, at any depth. The run's folder itself may be a link.

    Links are refused for reading too: a report would show to others what a link leads to. Raises `DataError` for a
    link, and `ConfigError` for a pipe or a device.
    """
    waiting = [folder / name for name in NAMES]
    while waiting:
        path = waiting.pop()
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        refuse_link(path)
        if stat.S_ISDIR(mode):
            waiting += [path / name for name in os.listdir(path)]
        elif not stat.S_ISREG(mode):
            raise ConfigError(f"{path} is no regular file; remove it, and run the command again")


def clear_leftovers(folder: Path) -> None:
    """Delete what killed processes left in a run's folder. Rank 0 calls this with the lock, before anybody writes."""
    for place in (folder, folder / "rollouts"):
        for left in place.glob(".*.tmp"):
            if _LEFT.fullmatch(left.name) and not left.is_symlink():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
