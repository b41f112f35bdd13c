"""Reads the files of a folder or an archive one after another. Refuses unsafe archives."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from crbc_envs.errors import DataError
from crbc_envs.storage.files import shown

MOST_MEMBERS = 60_000
"""The most files and folders of an archive. The 3,753 published games have 7,506 files."""

MOST_EXPANSION, ALWAYS_ALLOWED = 100, 256 << 20
"""An archive may unpack to a hundred times its size, and to 256 MiB in any case. ALFWorld's unpacks to 25 times."""

CHUNK = 1 << 20

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    OverflowError,
    ValueError,  # a name that is no UTF-8, an offset below zero
    RuntimeError,  # an encrypted zip, or a compression method that zipfile does not support
)
"""The errors of the archive libraries for a damaged file."""


class Member(NamedTuple):
    """A file of a source.

    Call `open` before asking for the next member. `done` is the number of bytes of the source before this file.
    """

    path: PurePosixPath
    open: Callable[[], IO[bytes]]
    done: int


def size_of(source: Path) -> int:
    """The size in bytes; for a folder, of all its files."""
    if source.is_dir():
        return sum(path.stat().st_size for path in _files(source))
    return source.stat().st_size


def members(source: Path, limit: int) -> Iterator[Member]:
    """The files of a folder, or of a .tar, .tar.gz, .tar.xz or .zip archive. Use it inside `damage_as_data_error`.

    Raises `DataError` for an archive with a path that leads outside, or whose members have more than `limit` bytes
    together, and for a tar with a link or a device. In a zip these are plain files. A folder may hold links to files.
    """
    if source.is_dir():
        return _folder_members(source)
    return (_zip_members if zipfile.is_zipfile(source) else _tar_members)(source, limit)


@contextmanager
def damage_as_data_error(source: Path) -> Iterator[None]:
    """Turns errors of the archive libraries into one `DataError` that names `source`."""
    try:
        yield
    except DataError:
        raise
    except _DAMAGE as error:
        kinds = "a folder nor a .tar, .tar.gz, .tar.xz or .zip"
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{source}: damaged, or neither {kinds} ({reason})") from error


def _files(folder: Path) -> Iterator[Path]:
    """The files under a folder and the links to files, in order of their paths. Links to folders are not followed."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(files) if Path(root, name).is_file())


def _folder_members(folder: Path) -> Iterator[Member]:
    done = 0
    for path in _files(folder):
        yield Member(PurePosixPath(path.relative_to(folder).as_posix()), partial(_open, path), done)
        done += path.stat().st_size


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


# ---- tar -------------------------------------------------------------------------------------------


def _tar_members(source: Path, limit: int) -> Iterator[Member]:
    guard = _Guard(source, limit)
    with source.open("rb") as raw, _plain(raw) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            while (info := archive.next()) is not None:
                if not (info.isreg() or info.isdir()) or info.issparse():
                    raise DataError(f"{source}: refused, {shown(info.name)} is a link or a device, or not a plain file")
                path = guard.checked_path(info.name, info.size)
                if info.isreg():
                    yield Member(path, partial(_opened, archive, info), raw.tell())
        while stream.read(CHUNK):  # to the end, because checksums come last
            pass


def _plain(raw: IO[bytes]) -> IO[bytes]:
    """The tar stream, decompressed while it is read."""
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(raw))
    return cast(IO[bytes], lzma.open(raw)) if start.startswith(b"\xfd7zXZ\x00") else raw


def _opened(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(info)
    assert stream is not None, "a regular file"
    return stream


# ---- zip -------------------------------------------------------------------------------------------


def _zip_members(source: Path, limit: int) -> Iterator[Member]:
    guard, done = _Guard(source, limit), 0
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            path = guard.checked_path(info.filename, info.file_size)
            if not info.is_dir():
                yield Member(path, partial(archive.open, info), done)
            done += info.compress_size


class _Guard:
    """Refuses members whose path leads outside, and archives that are too large (archive bombs)."""

    def __init__(self, source: Path, limit: int) -> None:
        self.source = source
        self.limit = min(limit, ALWAYS_ALLOWED + MOST_EXPANSION * source.stat().st_size)
        self.members = self.bytes = 0

    def checked_path(self, name: str, size: int) -> PurePosixPath:
        path = PurePosixPath(name)
        if path.is_absolute() or "\\" in name or ":" in name or ".." in path.parts:  # on some system
            raise DataError(f"{self.source}: refused, {shown(name)} would be written outside the data folder")
        self.members += 1
        self.bytes += size
        if size < 0 or self.bytes > self.limit or self.members > MOST_MEMBERS:
            raise DataError(
                f"{self.source}: refused, unpacked it has more than {self.limit:,} bytes or "
                f"{MOST_MEMBERS:,} members, which no data set of this package has"
            )
        return path
