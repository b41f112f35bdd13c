"""Recordings of play of others."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anchors import Rollout, RolloutGroup, Step
from crbc_envs.storage.rollouts import RecordedTurn, write_groups
from hostile.case import HERE, Case


def recording(folder: Path) -> Path:
    """FOLDER/here/a.parquet with one group of two rollouts of three steps, and with turns."""
    steps = [Step(f"anchor {t}", f"go {t}", 1.0, f"label {t}") for t in range(3)]
    group = RolloutGroup([Rollout(steps, True), Rollout(steps, False)], "task")
    turns = [RecordedTurn("prompt", "reply", -1.0, (1, 2), (3,)) for _ in range(6)]
    path = folder / HERE / "a.parquet"
    write_groups(path, [group], env_id="CRBC-Sokoban-v0", turns=turns)
    return path


def parquet(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Lays out the recording after `change` of its table."""

    def make(folder: Path) -> None:
        path = recording(folder)
        pq.write_table(change(pq.read_table(path)), path)

    return make


def head(**changed: Any) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        header = json.loads(table.schema.metadata[b"crbc"]) | changed
        return table.replace_schema_metadata({"crbc": json.dumps(header)})

    return change


def times(count: int) -> Callable[[Any], Any]:
    """So many rows, all of them the first one."""
    return lambda table: table.take(np.zeros(count, np.int64))


def big_png(pixels: int) -> bytes:
    """A PNG of that many pixels a side, in a few kilobytes or none."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = zlib.compress(bytes(1 << 20))
    shape = chunk(b"IHDR", struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + shape + chunk(b"IDAT", row) + chunk(b"IEND", b"")


def with_image(png: bytes | None) -> Callable[[Any], Any]:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

    def change(table: Any) -> Any:
        return table.append_column("image", pa.array([{"bytes": png, "path": None}] * 6, kind))

    return change


def read(folder: Path) -> None:
    from crbc_envs import read_recording

    read_recording(folder / HERE / "a.parquet")


def read_frames(folder: Path) -> None:
    from crbc_envs import read_recording
    from crbc_envs.storage.rollouts import decode_frame

    for png in read_recording(folder / HERE / "a.parquet").images or ():
        decode_frame(png)


PARQUET: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rows-more-than-a-million": ("rows", parquet(times(1_000_001))),
}
FRAMES = {"image-of-1e9-pixels": with_image(big_png(32_000))}
CASES = [
    Case(
        "recording-honest",
        "what is honest still works",
        0,
        make=lambda folder: (recording(folder), None)[1],
        probe=read,
    ),
    *(
        Case(f"recording-{name}", "Parquet rows and lengths", 2, (said,), make=make, probe=read)
        for name, (said, make) in PARQUET.items()
    ),
    *(
        Case(f"recording-{name}", "images of a recording", 2, ("image",), make=parquet(change), probe=read_frames)
        for name, change in FRAMES.items()
    ),
]
