"""Data sets that are not part of this package: where they are stored and how they are installed.

Every dataset is a folder under `data_home()`. `install` fills it from a folder or from archives. It leaves out
files that are not needed and refuses unsafe archives. A file gets its final name only when the whole dataset
is unpacked. A manifest of SHA-256 sums is stored with the files; readers check each file against it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import IO

from crbc_envs.errors import DataError
from crbc_envs.storage.archives import CHUNK, damage_as_data_error, members, size_of
from crbc_envs.storage.files import clear_left, read_json, refuse_link, replacing

HOME_VARIABLE = "CRBC_DATA"
MANIFEST = "manifest.json"

ProgressCallback = Callable[[int, int], None]
"""A progress callback: called with what is done so far, and the total: bytes of the sources, then what is checked."""


def data_home() -> Path:
    """The folder of all datasets: `$CRBC_DATA`, or the user's data folder for crbc."""
    if os.environ.get(HOME_VARIABLE):
        return Path(os.environ[HOME_VARIABLE]).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("crbc"))


@dataclass(frozen=True)
class Unpacked:
    """A folder of a dataset's files that is to be checked: a new one, not yet in its place, or the installed one."""

    folder: Path
    sources: str
    """Where the files come from, for messages; for an installed dataset, the folder."""
    on_progress: ProgressCallback
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each file comes from, by its path in the folder."""

    def origin(self, path: Path) -> str:
        """What the user knows a file as: its path in a source, such as "a.zip: train/a.txt". Else the path itself."""
        return self.origins.get(path.relative_to(self.folder).as_posix(), str(path))


@dataclass(frozen=True)
class Dataset:
    """A dataset as `crbc data NAME --from SOURCE` installs it."""

    name: str
    place: Callable[[PurePosixPath], PurePosixPath | None]
    """Maps the path of a file in a source to its path in the dataset. None leaves the file out."""
    check: Callable[[Unpacked], str]
    """Checks an unpacked folder. Returns its contents in one sentence, or raises `DataError`."""
    required: str
    """The files that a source must hold, in words."""
    limit: int
    """Upper limit for the unpacked size of an archive, in bytes."""
    prepare: Callable[[Path, ProgressCallback], None] = lambda folder, on_progress: None
    """Builds what readers need, such as an index, in an unpacked folder before it is checked."""

    @property
    def folder(self) -> Path:
        return data_home() / self.name

    @property
    def command(self) -> str:
        return f"crbc data {self.name} --from DIR"


def install(
    dataset: Dataset, sources: Sequence[str | Path], on_progress: ProgressCallback = lambda done, total: None
) -> str:
    """Install the dataset's files from `sources`: folders or .tar, .tar.gz, .tar.xz or .zip archives.

    Each top-level folder of the dataset, such as a split, is replaced as a whole. An interrupted install keeps
    the previous files; run it again. Returns in one sentence what was installed. Raises `DataError` for a
    source that is missing, unsafe, damaged, or holds none of the required files.
    """
    paths = [Path(source).expanduser() for source in sources]
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; give {dataset.required} with: {dataset.command}")
    home = dataset.folder.parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        clear_left(dataset.folder)
        staging = Path(mkdtemp(prefix=f".{dataset.name}.", suffix=".tmp", dir=home))
    except OSError as error:
        raise DataError(f"{error.filename or home}: {error.strerror or error}") from error
    try:
        digests, origins = _unpack(dataset, paths, staging, on_progress)
        names = ", ".join(map(str, paths))
        if not digests:
            raise DataError(f"{names}: holds nothing of {dataset.required}")
        dataset.prepare(staging, on_progress)
        checked = dataset.check(Unpacked(staging, names, on_progress, origins))
        _publish(dataset, staging, digests)
    except OSError as error:
        raise DataError(f"{error.filename or staging}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return checked


def _unpack(
    dataset: Dataset, sources: Sequence[Path], staging: Path, on_progress: ProgressCallback
) -> tuple[dict[str, str], dict[str, str]]:
    """Write the required files of all sources under `staging`. Returns their digests and their origins, by path."""
    digests: dict[str, str] = {}
    origins: dict[str, str] = {}
    total, before = sum(size_of(source) for source in sources), 0
    for source in sources:
        with damage_as_data_error(source):
            for member in members(source, dataset.limit):
                place = dataset.place(member.path)
                if place is not None:
                    if str(place) in digests:
                        raise DataError(f"{source}: {place} is there twice")
                    digests[str(place)] = _write(member.open(), staging / place)
                    origins[str(place)] = str(source / member.path) if source.is_dir() else f"{source}: {member.path}"
                on_progress(before + member.done, total)
        before += size_of(source)
    on_progress(total, total)
    return digests, origins


def _write(stream: IO[bytes], path: Path) -> str:
    """Write a stream to a new file. Returns its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with stream, path.open("xb") as out:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _publish(dataset: Dataset, staging: Path, digests: dict[str, str]) -> None:
    """Move the unpacked files and their manifest to their places. After an error everything is as it was."""
    folder = dataset.folder
    folder.mkdir(parents=True, exist_ok=True)
    refuse_link(folder / MANIFEST)
    fresh = sorted(path.name for path in staging.iterdir())
    try:
        before = read_manifest(folder)
    except DataError:  # none yet, or damaged: its entries for other files are lost
        before = {}
    kept = {path: digest for path, digest in before.items() if path.partition("/")[0] not in fresh}
    with replacing(staging / MANIFEST) as file:  # first, because the disk may be full
        file.write(json.dumps({"sha256": dict(sorted({**kept, **digests}.items()))}, indent=0).encode() + b"\n")
    old, begun = staging / ".old", []
    old.mkdir()
    try:
        for name in (*fresh, MANIFEST):
            begun.append(name)
            if (folder / name).exists():
                os.replace(folder / name, old / name)
            os.replace(staging / name, folder / name)
        begun.clear()
    finally:
        for name in reversed(begun):
            if not (staging / name).exists():
                os.replace(folder / name, staging / name)
            if (old / name).exists():
                os.replace(old / name, folder / name)


# ---- the manifest ----------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, str]:
    """The SHA-256 of each installed file, by path. Raises `DataError` if the manifest is missing or damaged."""
    path = folder / MANIFEST
    try:
        return dict(read_json(path)["sha256"])
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; install the data with: {_again(folder)}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); install the data again: {_again(folder)}") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, which may be larger than the memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(folder: Path, path: Path, digests: Mapping[str, str], content: bytes | None = None) -> None:
    """Raise `DataError` if the file is not the one that was installed. `content` is what was read of it, if it was."""
    name = path.relative_to(folder).as_posix()
    if name not in digests:
        raise DataError(f"{path}: not in {folder / MANIFEST}; install the data again: {_again(folder)}")
    if (sha256_of(path) if content is None else hashlib.sha256(content).hexdigest()) != digests[name]:
        raise DataError(f"{path}: not what was installed, its SHA-256 differs; install it again: {_again(folder)}")


def verify(dataset: Dataset, on_progress: ProgressCallback = lambda done, total: None) -> str:
    """Check every file of an installed dataset. Returns its contents in one sentence.

    Raises `DataError` for a file that is missing or is not the one that was installed.
    """
    digests = read_manifest(dataset.folder)
    for done, name in enumerate(digests, start=1):
        if not (dataset.folder / name).is_file():
            raise DataError(f"{dataset.folder / name}: missing; install the data again: {dataset.command}")
        check_file(dataset.folder, dataset.folder / name, digests)
        on_progress(done, len(digests))
    return dataset.check(Unpacked(dataset.folder, str(dataset.folder), on_progress))


def _again(folder: Path) -> str:
    return f"crbc data {folder.name} --from DIR"
