"""One writer at a time: the lock on a run folder.

The operating system releases the lock when its process ends, however it ends. A lock file left behind is therefore no
obstacle. Its text says who holds the lock. Readers need none.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import weakref
from datetime import UTC, datetime
from pathlib import Path

from crbc_envs.storage.files import read_bytes, refuse_link
from crbc_rl.errors import ConfigError

log = logging.getLogger(__name__)

FILE = ".lock"

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems without locks answer."""

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30  # a locked byte cannot be read by others, so it lies behind the text

    def _take(descriptor: int) -> bool:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _take(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def take(descriptor: int, place: Path) -> bool:
    """Take the lock on an open file. Returns whether this process has it now; also where the file system of `place` has
    no locks, which a warning says."""
    try:
        return _take(descriptor)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        log.warning("%s: this file system has no locks; let only one process write here", place)
        return True


class RunLock:
    """The lock of this process on a run folder. It is released with the last reference to it, or by `release`.

    Raises `DataError` if the lock file is a link: its text would replace that of another file.
    """

    def __init__(self, folder: Path) -> None:
        path = refuse_link(folder / FILE)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        self.release = weakref.finalize(self, os.close, descriptor)
        if not take(descriptor, folder):
            os.lseek(descriptor, 0, os.SEEK_SET)
            holder = os.read(descriptor, 500)
            self.release()
            who = holder.decode(errors="replace").strip() or "another process"
            raise ConfigError(f"{folder} is in use by {who}: wait, stop it, or choose another folder with --run DIR")
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, since {now}\n".encode())


def was_locked(folder: Path) -> bool:
    """Whether the lock file of a run is in a folder. Other programs have a .lock, too: ours names a process."""
    try:
        text = read_bytes(folder / FILE, 500)
    except (OSError, ValueError):
        return False
    return not text or text.startswith(b"pid ")


_held: weakref.WeakValueDictionary[Path, RunLock] = weakref.WeakValueDictionary()


def lock(folder: Path) -> RunLock:
    """Lock a run folder for this process, which may lock it more than once.

    Raises `ConfigError` naming the process that holds it, and writes nothing then.
    """
    key = folder.resolve()
    held = _held.get(key)
    if held is None or not held.release.alive:
        held = _held[key] = RunLock(folder)
    return held
