"""Files that can be trusted: their digests in a manifest, and errors of writing that name the file."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

MANIFEST = "manifest.json"
"""The file of a folder with the SHA-256 digest of each other file."""


class WriteErrors:
    """Context manager: an error of writing `path` or below it is an `OSError` with a file name.

    safetensors and tokenizers raise errors of their own, whose message ends with "(os error 28)".
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        number = error.errno if isinstance(error, OSError) and error.filename is None else None
        if error is not None and (found := re.search(r"\(os error (\d+)\)", str(error))):
            number = int(found[1])
        if number:
            raise OSError(number, os.strerror(number), str(self.path)) from error


def digest(path: Path) -> str:
    """The SHA-256 digest of a file, which is read in parts."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, files: Iterable[Path] | None = None) -> dict[str, str]:
    """The digest of each file by its path within `folder`; by default of all but the manifest."""
    if files is None:
        files = (path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): digest(path) for path in sorted(files)}


def write_manifest(folder: Path) -> None:
    """Write the digests of all files of `folder` into its manifest, once they have reached the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            sync(path)
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"sha256": digests(folder)}, indent=1) + "\n")
    sync(manifest)


def read_manifest(folder: Path) -> dict[str, str] | None:
    """The digests in the manifest of `folder`; None without a manifest. Raises `ValueError` where it is damaged."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    kept = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(kept, dict):
        raise ValueError("no digests")
    return kept


def damage(folder: Path) -> str | None:
    """What is wrong with the files of `folder`, compared with its manifest; None where they are as they were written.

    A folder without a manifest, as earlier versions wrote it, is not checked.
    """
    try:
        kept = read_manifest(folder)
    except ValueError:
        return f"{MANIFEST} is damaged"
    for name, expected in (kept or {}).items():
        try:
            if digest(folder / name) != expected:
                return f"{name} is damaged"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def sync(path: Path) -> None:
    """Wait until a file has reached the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
