"""Files of others: written whole or not at all, never through a link, and read within bounds."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from typing import IO, Any

from crbc_envs.errors import DataError

LARGEST_JSON = 64 << 20
"""The default limit of a JSON text in bytes. Parsed, a hostile one takes up to thirty times its size."""

LEFT_FILE, LEFT_FOLDER = r"[0-9a-f]{16}\.tmp", r"[a-z0-9_]{8}\.tmp"
"""How the temporary names of `replacing` and `replacing_folder` end, after ".NAME.": what a killed process leaves."""


def refuse_link(path: Path) -> Path:
    """The path itself. Raises `DataError` if it is a link: what is written through it would land somewhere else."""
    if path.is_symlink():
        raise DataError(f"{path} is a link to {os.readlink(path)[:200]}; remove the link, and run the command again")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Context manager: a new binary file that becomes `path` at the end, once it has reached the disk.

    After an error `path` is as it was. The temporary file's name is unpredictable, and no other process can have
    made it. Raises `DataError` if `path` is a link.
    """
    fresh = refuse_link(path).with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        with fresh.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Context manager: a new empty folder that becomes `path` at the end. The folder before it is deleted then.

    After an error `path` is as it was. Raises `DataError` if `path` is a link.
    """
    refuse_link(path)
    scratch = Path(mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        fresh, old = scratch / "new", scratch / "old"
        fresh.mkdir()
        yield fresh
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(fresh, path)
        except OSError:
            if old.exists():
                os.replace(old, path)
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def parse_json(text: str | bytes, most: int = LARGEST_JSON) -> Any:
    """The value of a JSON text. Raises `ValueError` if it is no JSON, longer than `most` or nested too deeply."""
    if len(text) > most:
        raise ValueError(f"it has {len(text):,} bytes, and at most {most:,} are read")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, most: int = LARGEST_JSON) -> Any:
    """The value of a JSON file. Raises `ValueError` like `parse_json`, also if it is no UTF-8, and `OSError`."""
    return parse_json(read_bytes(path, most), most)


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises `ValueError` for others, and `OSError`.

    A pipe or a device, which may never end, is refused.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most) + 1)  # a buffer of `most` bytes would cost more than the file
        if len(content) > size:  # it grew meanwhile
            content += file.read(max(0, most + 1 - len(content)))
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def open_regular(path: Path) -> IO[bytes]:
    """The file for reading. Raises `ValueError` for a pipe or a device, and `OSError`."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is no regular file")
    return file


def _without_waiting(path: str, flags: int) -> int:
    """Opens a named pipe at once, where nobody writes into it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def shown(value: object) -> str:
    """A value that others wrote, for a message: as Python writes it, and not longer than a line."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= 80 else f"{text[:77]}..."
