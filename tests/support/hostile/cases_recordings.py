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


def parquet(change: Callable[[Any], Any], **options: Any) -> Callable[[Path], None]:
    """Lays out the recording after `change` of its table."""

    def make(folder: Path) -> None:
        path = recording(folder)
        pq.write_table(change(pq.read_table(path)), path, **options)

    return make


def column(name: str, values: Callable[[int], Any]) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        return table.set_column(table.schema.get_field_index(name), name, values(table.num_rows))

    return change


def head(**changed: Any) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        header = json.loads(table.schema.metadata[b"crbc"]) | changed
        return table.replace_schema_metadata({"crbc": json.dumps(header)})

    return change


def raw_head(text: str) -> Callable[[Any], Any]:
    return lambda table: table.replace_schema_metadata({"crbc": text})


def times(count: int) -> Callable[[Any], Any]:
    """So many rows, all of them the first one."""
    return lambda table: table.take(np.zeros(count, np.int64))


def long_label(table: Any) -> Any:
    """A dictionary of one label of 40 MB, in each of 3,000 rows: 120 GB when written out."""
    table = times(3_000)(table)
    label = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000, np.int32)), pa.array(["x" * 40_000_000]))
    return table.set_column(table.schema.get_field_index("label"), "label", label)


def one_row_of_ids(table: Any) -> Any:
    """One row with 150 million token ids, all of them zero."""
    ids = pa.ListArray.from_arrays(pa.array([0, *[150_000_000] * 6], pa.int32()), np.zeros(150_000_000, np.int64))
    return table.set_column(table.schema.get_field_index("prompt_ids"), "prompt_ids", ids)


def page_lies(folder: Path) -> None:
    """A page's header claims 2 GiB, and the footer claims as little as before."""
    path = recording(folder)
    pq.write_table(pq.read_table(path), path, compression="zstd", use_dictionary=False, write_statistics=False)
    data = path.read_bytes()
    place = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    metadata = pq.read_metadata(path).row_group(0).column(0)
    page = data[place : place + metadata.total_compressed_size]
    size = page[3:]
    width = next(n for n, byte in enumerate(size, start=1) if byte < 128)
    big = b"\xfe\xff\xff\xff\x0f"  # the largest 32-bit number
    assert page[2] == 0x15, "the second field is a number"
    # The header grows, so the data of the page is cut by as many bytes: what is claimed is met first.
    forged = page[:3] + big + page[3 + width :]
    path.write_bytes(data[:place] + forged[: len(page)] + data[place + len(page) :])


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


def of(value: Any, kind: Any) -> Callable[[int], Any]:
    return lambda rows: pa.array([value] * rows, kind)


WIDE = {f"c{n}": pa.array([1]) for n in range(30_000)}
PARQUET: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rows-2-million": ("rows", parquet(times(2_000_000))),
    "rows-900-thousand-alike": ("missing", parquet(times(900_000))),
    "label-of-120-gb": ("missing", parquet(long_label)),
    "ids-150-million": ("in memory", parquet(one_row_of_ids)),
    "page-claims-2-gib": ("a.parquet", page_lies),
    "lengths-1e9": ("header is damaged", parquet(head(lengths=[[10**9, 10**9]]))),
    "lengths-negative": ("header is damaged", parquet(head(lengths=[[-1, 7]]))),
    "lengths-of-texts": ("header is damaged", parquet(head(lengths=[["3", True]]))),
    "lengths-nested": ("header is damaged", parquet(head(lengths=[[[3], {}]]))),
    "lengths-nothing": ("header is damaged", parquet(head(lengths=[]))),
    "environment-is-a-list": ("header is damaged", parquet(head(env_id=[1]))),
    "version-of-a-megabyte": ("record version", parquet(head(version="9\x1b[2J" * 100_000))),
    "header-deep": ("header is damaged", parquet(raw_head("[" * 200_000))),
    "header-number": ("header is damaged", parquet(raw_head('{"version": 1, "x": ' + "9" * 6_000 + "}"))),
    "group-2-to-62": ("no such row", parquet(column("group", of(2**62, pa.int64())))),
    "step-negative": ("no such row", parquet(column("step", of(-(2**63), pa.int64())))),
    "reward-nan": ("finite", parquet(column("reward", of(float("nan"), pa.float64())))),
    "reward-infinite": ("finite", parquet(column("reward", of(float("inf"), pa.float64())))),
    "logprob-infinite": ("finite", parquet(column("logprob", of(float("-inf"), pa.float64())))),
    "score-of-7": ("from 0 to 1", parquet(column("score", of(7.0, pa.float64())))),
    "ids-without-value": ("no value", parquet(column("reply_ids", of([None], pa.list_(pa.int64()))))),
    "anchor-is-a-number": ("column 'anchor'", parquet(column("anchor", of(7, pa.int64())))),
    "label-is-no-utf-8": (
        "damaged",
        parquet(column("label", lambda rows: pa.array([b"\xed\xa0\x80"] * rows).view(pa.string()))),
    ),
    "anchors-of-a-megabyte": (
        "starts at anchor",
        parquet(column("anchor", lambda rows: pa.array([f"{n}" * 1_000_000 for n in range(rows)]))),
    ),
    "columns-30-thousand": ("a.parquet", lambda folder: pq.write_table(pa.table(WIDE), folder / HERE / "a.parquet")),
    "row-groups-20-thousand": ("a.parquet", parquet(times(20_000), row_group_size=1)),
    "image-without-bytes": ("no value", parquet(with_image(None))),
}
FRAMES = {
    "image-no-png": with_image(b"GIF89a"),
    "image-of-1e9-pixels": with_image(big_png(32_000)),
    "image-of-9e7-pixels": with_image(big_png(9_400)),
    "image-cut-short": with_image(big_png(64)[:60]),
}
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
