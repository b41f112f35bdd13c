"""Files: written whole or not at all, never through a link. What is wrong with one that is read is a `ValueError`."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from types import TracebackType
from typing import IO, Any

from crbc_envs.errors import DataError

LEFT_FILE, LEFT_FOLDER = r"[0-9a-f]{16}\.tmp", r"[a-z0-9_]{8}\.tmp"
"""How the temporary names of `replacing` and `replacing_folder` end, after ".NAME.": what a killed process leaves."""


def refuse_link(path: Path) -> Path:
    """The path itself. Raises `DataError` if it is a link: what is written through it would land somewhere else."""
    if path.is_symlink():
        raise DataError(f"{path} is a link to {os.readlink(path)[:200]}; remove the link, and run the command again")
    return path


class WriteErrors:
    """Context manager: an error of writing `path` or below it is an `OSError` with a file name, no temporary one.

    safetensors and tokenizers raise errors of their own, whose message ends with "(os error 28)".
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        number = error.errno if isinstance(error, OSError) and str(error.filename or ".tmp").endswith(".tmp") else None
        if error is not None and (match := re.search(r"\(os error (\d+)\)", str(error))):
            number = int(match[1])
        if number:
            raise OSError(number, os.strerror(number), str(self.path)) from error


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


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all. Raises `OSError` naming it, and `DataError` if it is a link."""
    with WriteErrors(path), replacing(path) as file:
        file.write(content)


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record as a line of JSON, and wait until it has reached the disk.

    Raises `OSError` naming the file, and `DataError` if it is a link.
    """
    with WriteErrors(path), refuse_link(path).open("ab") as file:
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


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


def clear_left(path: Path) -> None:
    """Delete the temporary folders that killed processes left of `path`, whose name may be a pattern, more than a day
    ago. Newer ones may be at work."""
    for left in path.parent.glob(f".{path.name}.{'?' * 8}.tmp"):
        if left.is_dir() and not left.is_symlink() and time.time() - left.stat().st_mtime > 86_400:
            shutil.rmtree(left, ignore_errors=True)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `ValueError` if it is no JSON or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises `ValueError` like `parse_json`, also if it is no UTF-8, and `OSError`."""
    return parse_json(path.read_bytes())


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises `ValueError` for others, and `OSError`."""
    if path.stat().st_size > most:
        raise ValueError(f"it has more than {most:,} bytes")
    if not path.is_file():
        raise ValueError("it is no regular file")
    return path.read_bytes()


def shown(value: object) -> str:
    """A value that others wrote, for a message: as Python writes it, and not longer than a line."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a {type(value).__name__} of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
