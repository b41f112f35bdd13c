"""Files that can be trusted: their digests in a manifest.

A manifest also says what the folder is, such as {"crbc": "checkpoint", "update": 10}. Only folders with such a mark are
ever deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crbc_envs.storage.datasets import sha256_of
from crbc_envs.storage.files import read_json, shown

MANIFEST = "manifest.json"
"""The file of a folder with the SHA-256 digest of each other file."""


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """The digest of each file by its path within `folder`."""
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in sorted(files)}


def files_of(folder: Path) -> list[Path]:
    """All files of `folder` but the manifest, the largest first."""
    files = (path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def synced_digests(folder: Path, files: Sequence[Path]) -> dict[str, str]:
    """`digests` of files that have reached the disk."""
    for path in files:
        sync(path)
    return digests(folder, files)


def write_manifest(folder: Path, mark: Mapping[str, Any] = {}, by_name: Mapping[str, str] | None = None) -> None:
    """Write sizes and digests of all files of `folder`, by default those that they have, and a mark, as manifest."""
    by_name = dict(sorted((synced_digests(folder, files_of(folder)) if by_name is None else by_name).items()))
    manifest, sizes = folder / MANIFEST, {name: (folder / name).stat().st_size for name in by_name}
    manifest.write_text(json.dumps({**mark, "bytes": sizes, "sha256": by_name}, indent=1) + "\n")
    sync(manifest)


def share_files(files: Iterable[Path], target: Path) -> None:
    """Give the folder `target` these files without writing them again: as hard links, where the file system has them. A
    link, as the hub's cache has them, counts as what it leads to."""
    for path in files:
        try:
            os.link(path.resolve(), target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)


def _manifest(folder: Path) -> dict[str, Any] | None:
    """The content of the manifest of `folder`; None without a manifest. Raises `ValueError` where it is damaged."""
    try:
        content = read_json(folder / MANIFEST)
    except FileNotFoundError:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("sha256"), dict):
        raise ValueError("no digests")
    return content


def read_manifest(folder: Path) -> dict[str, str] | None:
    """The digests in the manifest of `folder`; None without a manifest. Raises `ValueError` where it is damaged."""
    content = _manifest(folder)
    return None if content is None else content["sha256"]


def read_mark(folder: Path) -> dict[str, Any]:
    """What `write_manifest` marked a folder as; empty for a link, and without a manifest or with a damaged one."""
    try:
        content = None if folder.is_symlink() else _manifest(folder)
    except (OSError, ValueError):
        content = None
    return {name: value for name, value in (content or {}).items() if name not in ("bytes", "sha256")}


def damage(folder: Path) -> str | None:
    """What is wrong with the files of `folder`, compared with its manifest; None where they are as they were written.

    A folder without a manifest, such as one of the hub's cache, is not checked. A manifest that names something outside
    the folder is wrong.
    """
    try:
        content = _manifest(folder) or {"sha256": {}}
    except (OSError, ValueError):
        return f"{MANIFEST} is damaged"
    sizes, own = content.get("bytes", {}), folder.resolve()
    for name, expected in content["sha256"].items():
        if not (folder / name).resolve().is_relative_to(own):
            return f"{MANIFEST} names {shown(name)}, which is no file of that folder"
        try:
            size = (folder / name).stat().st_size  # compared first: a file with a hole may be read for hours
            if size != sizes.get(name, size) or sha256_of(folder / name) != expected:
                return f"{name} is damaged"
        except FileNotFoundError:
            return f"{name} is missing"
    return None


def sync(path: Path) -> None:
    """Wait until a file has reached the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
