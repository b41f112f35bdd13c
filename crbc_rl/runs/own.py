"""What a run writes in its folder, and the lock of its one writer.

Training writes through no link there, unless that is asked for. The operating system releases the lock when its process
ends, however it ends. A lock file left behind is therefore no obstacle. Its text says who holds the lock. Readers need
none.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from crbc_envs.errors import DataError
from crbc_envs.storage.files import LEFT_FILE, LEFT_FOLDER, read_bytes, refuse_link
from crbc_rl.errors import ConfigError

log = logging.getLogger(__name__)

FILE = ".lock"
ASKED = "train.yaml"
"""The config that another process was started with."""
LOG = "train.log"
"""What a run says that another process started."""

NAMES = (
    FILE,
    "best",
    "checkpoints",
    "config.yaml",
    "groups.jsonl",
    "invalid.jsonl",
    "metrics.jsonl",
    "model",
    "outcomes.jsonl",
    "report.html",
    "rollouts",
    "tensorboard",
    "tracking.json",
    "transcripts",
    ASKED,
    LOG,
    "versions.json",
)
"""What a run writes. Other files in its folder are left alone."""
_KEPT = "|".join(map(re.escape, sorted({*NAMES} - {"report.html"})))  # a reader may be writing a report
_LEFT = re.compile(rf"\.({_KEPT}|([a-z]+-)?[0-9]{{6,9}}(\.parquet)?)\.({LEFT_FILE}|{LEFT_FOLDER})")
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
    for place in (folder, *(folder / name for name in ("rollouts", "transcripts", "checkpoints", "best"))):
        for left in place.glob(".*.tmp"):
            if _LEFT.fullmatch(left.name) and not left.is_symlink():
                shutil.rmtree(left) if left.is_dir() else left.unlink()


# ---- one writer at a time ------------------------------------------------------------------------------------

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems without locks answer."""


def take(path: Path, sign: Callable[[int], None] | None = None) -> BaseFileLock | None:
    """The lock on a file, None where another process has it. This process may take it more than once, and has it until
    it drops the last reference. `sign` writes into the file when it is taken.

    A warning says that a file system has no locks. Raises `DataError` where the file is a link: the text of another
    file would be replaced.
    """
    lock = FileLock(
        refuse_link(path),
        blocking=False,
        thread_local=False,
        is_singleton=True,
        preserve_lock_file=True,
        on_acquired=sign,
    )
    try:
        if not lock.is_locked:
            lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        log.warning("%s: this file system has no locks; let only one process write here", path)
    return lock


def lock(folder: Path) -> BaseFileLock:
    """Lock a run folder for this process. Raises `ConfigError` naming the process that holds it, and writes nothing
    then."""
    held = take(folder / FILE, _sign)
    if held is None:
        who = (_text(folder) or b"").decode(errors="replace").strip() or "another process"
        raise ConfigError(f"{folder} is in use by {who}: wait, stop it, or choose another folder with --run DIR")
    return held


def _sign(descriptor: int) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, since {now}\n".encode())


def was_locked(folder: Path) -> bool:
    """Whether the lock file of a run is in a folder. Other programs have a .lock, too: ours names a process."""
    text = _text(folder)
    return text is not None and (not text or text.startswith(b"pid "))


def _text(folder: Path) -> bytes | None:
    """What the lock file says, None where there is none of ours."""
    try:
        return read_bytes(folder / FILE, 500)
    except (OSError, ValueError):
        return None
