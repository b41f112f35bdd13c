"""Where data that is not part of this package lives, and how it gets there.

Every dataset is a folder under `data_home()`. `install` fills it from a folder or from archives: what is
not wanted stays out, unsafe archives are refused, and nothing appears under its name before it is whole.
A manifest of SHA-256 sums is kept beside it, and whoever reads a file checks it against that.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from crbc_envs.errors import DataError

HOME_VARIABLE = "CRBC_DATA"
MANIFEST = "manifest.json"
MOST_MEMBERS = 1_000_000
CHUNK = 1 << 20

Tell = Callable[[int, int], None]
"""Called now and then with the bytes of the sources read so far, and how many there are."""


def data_home() -> Path:
    """The folder all datasets are under: `$CRBC_DATA`, or the user's data folder for crbc."""
    if os.environ.get(HOME_VARIABLE):
        return Path(os.environ[HOME_VARIABLE]).expanduser().absolute()
    import platformdirs

    return platformdirs.user_data_path("crbc")


@dataclass(frozen=True)
class Dataset:
    """A dataset as `crbc data NAME --from SOURCE` installs it."""

    name: str
    place: Callable[[PurePosixPath], PurePosixPath | None]
    """Where a file of a source goes, or None for one that is left out."""
    check: Callable[[Path], str]
    """Looks an unpacked folder over: what is in it, in a sentence, or a `DataError`."""
    wants: str
    """What a source must hold, in words."""
    limit: int
    """Most bytes the members of an archive may have when unpacked."""

    @property
    def folder(self) -> Path:
        return data_home() / self.name

    @property
    def command(self) -> str:
        return f"crbc data {self.name} --from DIR"


def install(dataset: Dataset, sources: Sequence[str | Path], tell: Tell = lambda done, total: None) -> str:
    """Put what the dataset wants of `sources`, folders or .tar, .tar.gz, .tar.xz or .zip archives, in place.

    What stands at the top of the dataset, such as a split, is replaced as a whole. Interrupted at any time
    it leaves what was there before; start it again. Returns what was installed, in a sentence. Raises
    `DataError` for a source that is missing, unsafe, damaged, or holds nothing that is wanted.
    """
    paths = [Path(source).expanduser() for source in sources]
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; give {dataset.wants} with: {dataset.command}")
    staging = dataset.folder.with_name(f".{dataset.name}.unpacking")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(parents=True)
        digests = _unpack(dataset, paths, staging, tell)
        if not digests:
            raise DataError(f"{', '.join(map(str, paths))}: holds nothing of {dataset.wants}")
        found = dataset.check(staging)
        _publish(dataset, staging, digests)
    except OSError as error:
        raise DataError(f"{error.filename or staging}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return found


def _unpack(dataset: Dataset, sources: Sequence[Path], staging: Path, tell: Tell) -> dict[str, str]:
    """Write the wanted files of all sources under `staging`; their digests by path."""
    digests: dict[str, str] = {}
    total, before = sum(_size(source) for source in sources), 0
    for source in sources:
        with _damage_named(source):
            for member in _members(source, dataset.limit):
                place = dataset.place(member.path)
                if place is not None:
                    if str(place) in digests:
                        raise DataError(f"{source}: {place} is there twice")
                    digests[str(place)] = _write(member.open(), staging / place)
                tell(before + member.read(), total)
        before += _size(source)
        tell(before, total)
    return digests


def _write(stream: IO[bytes], path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with stream, path.open("xb") as out:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _publish(dataset: Dataset, staging: Path, digests: dict[str, str]) -> None:
    """Move what was unpacked to its place, then write the manifest."""
    folder = dataset.folder
    folder.mkdir(parents=True, exist_ok=True)
    fresh = sorted(path.name for path in staging.iterdir())
    manifest = folder / MANIFEST
    try:
        before = read_manifest(folder)
    except DataError:  # none yet, or damaged: what it said of other files is lost
        before = {}
    kept = {path: digest for path, digest in before.items() if path.partition("/")[0] not in fresh}
    for name in fresh:
        old = staging / f".{name}.old"
        if (folder / name).exists():
            os.replace(folder / name, old)
        os.replace(staging / name, folder / name)
    written = staging / MANIFEST
    written.write_text(json.dumps({"sha256": dict(sorted({**kept, **digests}.items()))}, indent=0) + "\n")
    os.replace(written, manifest)


# ---- the manifest ----------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, str]:
    """SHA-256 by path of what was installed in `folder`. Raises `DataError` where there is none, or it is damaged."""
    path = folder / MANIFEST
    try:
        digests = dict(json.loads(path.read_text(encoding="utf-8"))["sha256"])
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; install the data with: {_again(folder)}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); install the data again: {_again(folder)}") from error
    return {str(name): str(digest) for name, digest in digests.items()}


def check_file(folder: Path, path: Path, digests: dict[str, str]) -> None:
    """Raise `DataError` where the file is not the one that was installed."""
    name = path.relative_to(folder).as_posix()
    if name not in digests:
        raise DataError(f"{path}: not in {folder / MANIFEST}; install the data again: {_again(folder)}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != digests[name]:
        raise DataError(f"{path}: not what was installed, its SHA-256 differs; install it again: {_again(folder)}")


def verify(dataset: Dataset, tell: Tell = lambda done, total: None) -> str:
    """Check every file of an installed dataset. Returns what there is, in a sentence; raises `DataError` for a
    file that is missing or is not the one that was installed."""
    digests = read_manifest(dataset.folder)
    for done, name in enumerate(digests, start=1):
        if not (dataset.folder / name).is_file():
            raise DataError(f"{dataset.folder / name}: missing; install the data again: {dataset.command}")
        check_file(dataset.folder, dataset.folder / name, digests)
        tell(done, len(digests))
    return dataset.check(dataset.folder)


def _again(folder: Path) -> str:
    return f"crbc data {folder.name} --from DIR"


# ---- sources ---------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A file of a source. `open` is to be called before the next member is asked for; `read` says how many
    bytes of the source have been read."""

    path: PurePosixPath
    open: Callable[[], IO[bytes]]
    read: Callable[[], int]


def _size(source: Path) -> int:
    if source.is_dir():
        return sum(path.stat().st_size for path in _files(source))
    return source.stat().st_size


def _files(folder: Path) -> Iterator[Path]:
    """The regular files under a folder, in order of their paths; links to folders are not followed."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(root, name) for name in sorted(files) if Path(root, name).is_file())


def _members(source: Path, limit: int) -> Iterator[Member]:
    if source.is_dir():
        return _folder_members(source)
    if zipfile.is_zipfile(source):
        return _zip_members(source, limit)
    return _tar_members(source, limit)


def _folder_members(folder: Path) -> Iterator[Member]:
    done = 0
    for path in _files(folder):
        done += path.stat().st_size
        yield Member(PurePosixPath(path.relative_to(folder).as_posix()), lambda p=path: p.open("rb"), lambda d=done: d)


def _tar_members(source: Path, limit: int) -> Iterator[Member]:
    with source.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|*") as archive:
        guard = _Guard(source, limit)
        for info in archive:
            if not (info.isreg() or info.isdir()):
                raise DataError(f"{source}: refused, {info.name!r} is a link or a device")
            path = guard.admit(info.name, info.size)
            if info.isreg():
                yield Member(path, lambda i=info: _opened(archive, i), raw.tell)


def _opened(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(info)
    assert stream is not None, "a regular file"
    return stream


def _zip_members(source: Path, limit: int) -> Iterator[Member]:
    with zipfile.ZipFile(source) as archive:
        guard, done = _Guard(source, limit), 0
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(f"{source}: refused, {info.filename!r} is a link or a device")
            if info.flag_bits & 1:
                raise DataError(f"{source}: refused, {info.filename!r} is encrypted")
            path = guard.admit(info.filename, info.file_size)
            done += info.compress_size
            if not info.is_dir():
                yield Member(path, lambda i=info: archive.open(i), lambda d=done: d)


class _Guard:
    """Lets the members of an archive pass whose paths stay inside and whose sizes add up to no bomb."""

    def __init__(self, source: Path, limit: int) -> None:
        self.source, self.limit = source, limit
        self.members = self.bytes = 0

    def admit(self, name: str, size: int) -> PurePosixPath:
        path = PurePosixPath(name)
        unsafe = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not name.isprintable()
        if unsafe:
            raise DataError(f"{self.source}: refused, {name!r} would be written outside the data folder")
        self.members += 1
        self.bytes += size
        if self.bytes > self.limit or self.members > MOST_MEMBERS:
            raise DataError(
                f"{self.source}: refused, unpacked it has more than {self.limit / 2**30:.0f} GiB or "
                f"{MOST_MEMBERS:,} members, which is no data this package knows"
            )
        return path


@contextmanager
def _damage_named(source: Path) -> Iterator[None]:
    """What the archive libraries raise, as one error that names the archive."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, LZMAError, EOFError, zlib.error, NotImplementedError) as error:
        raise DataError(
            f"{source}: damaged, or neither a folder nor a .tar, .tar.gz, .tar.xz or .zip ({error})"
        ) from error
