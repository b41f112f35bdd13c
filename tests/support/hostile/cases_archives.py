"""Archives and folders of others, that hold games or seem to."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE
from hostile.case import HERE, OUTSIDE, Case
from hostile.cases_games import honest_game, write_game

NAME = "json_2.1.1/train/clean/trial/"
Tar = Iterator[bytes]


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def plain(name: str = f"{NAME}game.tw-pddl", content: bytes = b"{}") -> bytes:
    return header(name, len(content)) + content + bytes(-len(content) % 512)


MIB = 1 << 20


def of_zeros(mebibytes: int) -> Callable[[], Tar]:
    return lambda: repeat(bytes(MIB), mebibytes)  # one object, whose digest is computed once


def tar_gz(*parts: bytes | Callable[[], Tar]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/a.tar.gz. Runs of equal blocks are compressed once."""

    def make(folder: Path) -> None:
        compressed: dict[bytes, bytes] = {}
        with (folder / HERE / "a.tar.gz").open("wb") as file:
            for part in parts:
                for block in [part] if isinstance(part, bytes) else part():
                    if block not in compressed:
                        compressed[block] = gzip.compress(block, 6)
                    file.write(compressed[block])

    return make


def tiny_members() -> Tar:
    block = b"".join(header(f"x{n % 10}") for n in range(1000))
    return (block for _ in range(1500))


def zip_of(*names: str, change: Callable[[bytes], bytes] = lambda data: data) -> Callable[[Path], None]:
    """Lays out a zip of an honest game's files under these names, after `change`. Its suffix is of no use."""

    def make(folder: Path) -> None:
        text, trajectory = honest_game()
        path = folder / HERE / "a.tar.gz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, trajectory if name.endswith(TRAJECTORY_FILE) else text)
        path.write_bytes(change(path.read_bytes()))

    return make


def linked_file(folder: Path) -> None:
    text, trajectory = honest_game()
    write_game(folder, text, trajectory)
    path = next((folder / HERE).rglob(GAME_FILE))
    path.unlink()
    path.symlink_to(folder / OUTSIDE / "precious.txt")


def manifest_outside(folder: Path) -> None:
    place = folder / HERE / "data" / "alfworld"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(json.dumps({"sha256": {"/dev/stdin": "0", "../../secret": "1"}}))


def of_few_members(folder: Path) -> None:
    """The command, where a tenth of the members is too many: a tar is read slowly."""
    from crbc_envs.storage import archives
    from crbc_lab import cli

    archives.MOST_MEMBERS //= 10
    cli.main(["data", "alfworld", "--from", str(folder / HERE / "a.tar.gz")])


BOTH = f"{NAME}game.tw-pddl", f"{NAME}traj_data.json"
ARCHIVE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "tar-pax-header-of-1.5-gib": ("it has more than", tar_gz(header("p", 1536 * MIB, tarfile.XHDTYPE), of_zeros(1536))),
    "zip-other-local-header": ("damaged", zip_of(*BOTH, change=lambda data: data.replace(b"json_2", b"../../", 1))),
}
SOURCES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "folder-with-a-link-to-a-file": ("is a link to", linked_file),
}
BOUNDS = "archive headers and members"
CASES = [
    *(
        Case(f"archive-{name}", BOUNDS, 2, (said,), make=make, argv=("data", "alfworld", "--from", "{here}/a.tar.gz"))
        for name, (said, make) in ARCHIVE.items()
    ),
    Case("archive-tar-1.5-million-members", BOUNDS, 2, ("members",), make=tar_gz(tiny_members), probe=of_few_members),
    *(
        Case(f"archive-{name}", BOUNDS, 2, (said,), make=make, argv=("data", "alfworld", "--from", "{here}/games"))
        for name, (said, make) in SOURCES.items()
    ),
    Case(
        name="archive-honest-zip",
        finding="what is honest still works",
        status=0,
        says=("train 1 games",),
        make=zip_of(*BOTH),
        argv=("data", "alfworld", "--from", "{here}/a.tar.gz"),
    ),
    Case("archive-manifest-outside", BOUNDS, 2, ("damaged",), make=manifest_outside, argv=("data", "alfworld")),
]
