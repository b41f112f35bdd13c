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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from crbc_envs.errors import DataError
from crbc_envs.storage.archives import CHUNK, damage_named, members, size_of

HOME_VARIABLE = "CRBC_DATA"
MANIFEST = "manifest.json"

Tell = Callable[[int, int], None]
"""Called now and then with the bytes of the sources read so far, and how many there are."""


def data_home() -> Path:
    """The folder all datasets are under: `$CRBC_DATA`, or the user's data folder for crbc."""
    if os.environ.get(HOME_VARIABLE):
        return Path(os.environ[HOME_VARIABLE]).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("crbc"))


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
    prepare: Callable[[Path, Tell], None] = lambda folder, tell: None
    """Builds in an unpacked folder, before it is checked, what reading it takes: an index."""

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
        dataset.prepare(staging, tell)
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
    total, before = sum(size_of(source) for source in sources), 0
    for source in sources:
        with damage_named(source):
            for member in members(source, dataset.limit):
                place = dataset.place(member.path)
                if place is not None:
                    if str(place) in digests:
                        raise DataError(f"{source}: {place} is there twice")
                    digests[str(place)] = _write(member.open(), staging / place)
                tell(before + member.done, total)
        before += size_of(source)
    tell(total, total)
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
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digests[name]:
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
