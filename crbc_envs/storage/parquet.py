"""The Parquet file behind `crbc_envs.storage.rollouts`: its columns and header, writing, reading and checks.

The schema's metadata hold one JSON object under "crbc": the format version, the environment id, and the
number of steps of every rollout. The latter shows whether a row was lost. Each rollout group is one row group with a
digest in the footer, and the footer is sealed with a digest: so one group is verified and read without the rest. What a
reader would refuse is not written.
"""

from __future__ import annotations

import io
import json
import logging
import mmap
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchors import ANCHOR_VERSION, GroupError
from crbc_envs.errors import DataError
from crbc_envs.storage.files import parse_json, replacing, shown

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

log = logging.getLogger(__name__)

Row = dict[str, Any]
Lengths = list[list[int]]
"""The number of steps of every rollout of every group."""

RECORD_VERSION = 1
"""Increased whenever the format changes so that older files cannot be read."""

STEP_COLUMNS = {
    "update": "int64",
    "group": "int64",
    "rollout": "int64",
    "step": "int64",
    "task_id": "string",
    "anchor": "string",
    "label": "string",
    "action": "string",
    "valid": "bool",
    "reward": "double",
    "success": "bool",
    "truncated": "bool",
    "final_anchor": "string",
    "score": "double",
}
TURN_COLUMNS = {"prompt": "string", "reply": "string", "logprob": "double", "prompt_ids": "ids", "reply_ids": "ids"}
TOKEN_COLUMNS = dict.fromkeys(("logprobs", "values", "trained", "ratios", "advantages", "clipped"), "numbers")
OPTIONAL_COLUMNS = {"cause": "string", **TOKEN_COLUMNS, "image": "image"}
COLUMNS = STEP_COLUMNS | TURN_COLUMNS | OPTIONAL_COLUMNS
TEXTS = {name for name, kind in COLUMNS.items() if kind == "string"} | {"image.bytes", "image.path"}

TOLD: Row = dict.fromkeys(("dynamics", "anchor", "policy", "credit"))
"""What a header tells beyond environment and lengths, all of it optional."""

REMEDY = "`crbc train CONFIG` writes such files into RUN/transcripts"


def write_columns(path: Path, columns: Mapping[str, Any], env_id: str, lengths: Lengths, **told: Any) -> None:
    """Write columns of equal length to a temporary file, then rename it to `path`. `told`, of which `TOLD` has the
    names, goes into the header as far as it is not None.

    Raises `GroupError` for more rows than are read, and one that names the column for values that the file could not
    give back: NaN, no value, another type.
    """
    import pyarrow as pa

    header: Row = {"version": RECORD_VERSION, "anchor_version": ANCHOR_VERSION, "env_id": env_id, "lengths": lengths}
    header |= {name: value for name, value in told.items() if value is not None}
    arrays = {}
    for name in (name for name in COLUMNS if name in columns):
        values = columns[name]
        try:
            arrays[name] = pa.array(values, _type(name))
        except UnicodeEncodeError:  # half a character, which a server may send, and which UTF-8 cannot hold
            whole = [text and text.encode(errors="replace").decode() for text in values]
            arrays[name] = pa.array(whole, _type(name))
        except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
            raise GroupError(f"{path}: not written: column {name!r}: {' '.join(str(error).split())[:200]}") from error
    metadata = {"crbc": json.dumps(header)}
    if "image" in columns:  # makes `datasets` decode the column as images
        metadata["huggingface"] = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    table = pa.table(arrays, pa.schema([(name, _type(name)) for name in arrays], metadata=metadata))
    many = f"of {table.num_rows:,} rows at most {MOST_ROWS:,} are read: write several files"
    if wrong := many if table.num_rows > MOST_ROWS else _fault(table):
        raise GroupError(f"{path}: not written: {wrong}")

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(_file(table, [sum(members) for members in lengths]))


def _file(table: pa.Table, sizes: Sequence[int]) -> bytes:
    """A sealed Parquet file of one row group for each of `sizes`, in rows."""
    import pyarrow.parquet as pq

    options: Row = {"compression": "zstd", "write_page_checksum": True, "write_statistics": False}
    content, parts, start = io.BytesIO(), list[tuple[int, str]](), 0
    with pq.ParquetWriter(content, table.schema, **options) as writer:
        for size in sizes:
            begin = parts[-1][0] if parts else 0
            writer.write_table(table.slice(start, size), row_group_size=size)
            parts.append((content.tell(), _digest(content.getbuffer()[begin:]).hex()))
            start += size
        writer.add_key_value_metadata({PARTS: json.dumps(parts)})
    return sealed(content.getvalue())


MOST_ROWS = 1_000_000
"""The most rows of a file. An update of the paper's scale has 16 x 8 rollouts of up to 50 steps: 6,400."""

LARGEST_TABLE = 8 << 30
"""The most bytes of a file's columns, unpacked, as its footer tells them."""


def read_table(path: Path, names: Iterable[str], groups: Iterable[int] | None = None) -> tuple[pa.Table, Row]:
    """The `names` columns that the file has, and its header: "env_id", "lengths", the "groups" whose rows these are,
    and what `TOLD` names, or None. With `groups` these alone are read, in the order of the file.

    Texts and images are dictionary arrays, so that what repeats is in memory once. Raises `DataError` for a file that
    is missing, not Parquet, damaged, of another version or far too large, for a group that it does not have, and for a
    wrong column. The caller checks which rows there are.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path}: no such file; {REMEDY}")
    try:
        with path.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            seal = seal_of(mapped)
            metadata = pq.read_metadata(path)
            _check_size(path, metadata)
            texts = sorted(TEXTS & {metadata.schema.column(number).path for number in range(metadata.num_columns)})
            with pq.ParquetFile(
                path, metadata=metadata, read_dictionary=texts, page_checksum_verification=True
            ) as file:
                header = _header(path, file.schema_arrow)
                parts: Sequence[int] = range(metadata.num_row_groups)
                if seal == MARK:
                    header["groups"] = parts = _wanted(path, groups, header)
                    check_parts(mapped, metadata, parts)
                columns = [name for name in names if name in file.schema_arrow.names]
                # One by one: Arrow reads no structs with dictionaries from several.
                table = _plain_columns(pa.concat_tables([file.read_row_group(part, columns) for part in parts]))
        table.validate(full=True)
        if "lengths" not in header:
            header["lengths"] = _lengths(table)
        if "groups" not in header:
            header["groups"] = _wanted(path, groups, header)
            table = table if groups is None else _rows_of_groups(table, header)
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is damaged, cut short or no Parquet file ({reason}); {REMEDY}") from error
    if wrong := _fault(table):
        raise DataError(f"{path}: {wrong}; {REMEDY}")
    if seal is None:
        log.warning("%s was written by another tool: nothing tells whether a row was changed there", path)
    return table, header


def _wanted(path: Path, groups: Iterable[int] | None, header: Row) -> list[int]:
    """The numbers of the groups to read. Raises `DataError` for one that the file does not have."""
    count = len(header["lengths"])
    wanted = list(range(count)) if groups is None else sorted(set(groups))
    if wrong := [number for number in wanted or [-1] if not 0 <= number < count]:
        raise DataError(f"{path}: it has no group {wrong[0]}; choose from 0 to {count - 1}")
    return wanted


def _rows_of_groups(table: pa.Table, header: Row) -> pa.Table:
    """The rows where those of some groups were written."""
    import pyarrow as pa

    sizes = [sum(members) for members in header["lengths"]]
    starts = np.cumsum([0, *sizes]).tolist()
    return pa.concat_tables([table.slice(starts[number], sizes[number]) for number in header["groups"]])


def _check_size(path: Path, metadata: pq.FileMetaData) -> None:
    """Raise `DataError` for a file that has more rows, or takes more memory, than any recording."""
    if metadata.num_rows > MOST_ROWS:
        raise DataError(f"{path}: it has {metadata.num_rows:,} rows, and at most {MOST_ROWS:,} are read; {REMEDY}")
    needed = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    if needed > LARGEST_TABLE:
        raise DataError(f"{path}: it would take {needed:,} bytes in memory; {REMEDY}")


def rows_of(table: pa.Table) -> list[Row]:
    """The rows as dictionaries. Equal texts of a row group are one object."""
    names = table.column_names
    columns = [_values(table.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(array: Any) -> list[Any]:
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in _values(chunk)]
    if isinstance(array, pa.DictionaryArray):
        known = array.dictionary.to_pylist()
        return [None if index is None else known[index] for index in array.indices.to_pylist()]
    if isinstance(array, pa.StructArray):
        parts = [_values(part) for part in array.flatten()]
        return [dict(zip(array.type.names, values, strict=True)) for values in zip(*parts, strict=True)]
    return array.to_pylist()


def _type(name: str) -> pa.DataType:
    """The Arrow type of a column. All columns are nullable, because `datasets` requires it."""
    import pyarrow as pa

    kind = COLUMNS[name]
    if kind in ("ids", "numbers"):
        return pa.list_(pa.int64() if kind == "ids" else pa.float64())
    if kind == "image":  # the storage type of the Image feature of `datasets`
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.type_for_alias(kind)


def _header(path: Path, schema: pa.Schema) -> Row:
    text = (schema.metadata or {}).get(b"crbc")
    if text is None and set(STEP_COLUMNS) <= set(schema.names):  # pandas keeps the columns alone
        return {"env_id": "", **TOLD}
    if text is None:
        raise DataError(f"{path} is a Parquet file without recorded rollouts; {REMEDY}")
    try:
        header: Row = {**TOLD, **parse_json(text)}
        version, anchor_version = header["version"], header.get("anchor_version", ANCHOR_VERSION)
        if version == RECORD_VERSION:
            lengths = header["lengths"]  # each rollout has a step, and all have no more than are read
            if min(map(min, lengths)) < 1 or sum(map(sum, lengths)) > MOST_ROWS:
                raise ValueError("its lengths are none")
        credit = header["credit"]
        if credit is not None and not (isinstance(credit["method"], str) and isinstance(credit["options"], dict)):
            raise ValueError("its credit is none")
        if not isinstance(header["policy"], str | None):
            raise ValueError("its policy is no text")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: its header is damaged; {REMEDY}") from error
    if version != RECORD_VERSION:
        raise DataError(
            f"{path} is of record version {shown(version)}, this crbc reads version {RECORD_VERSION}: "
            f"read it with the crbc that wrote it, or record it again; {REMEDY}"
        )
    if anchor_version != ANCHOR_VERSION:
        raise DataError(
            f"{path} has anchor keys of version {shown(anchor_version)}, this crbc makes version "
            f"{ANCHOR_VERSION}: read it with the crbc that wrote it, or record it again; {REMEDY}"
        )
    return header


def _lengths(table: pa.Table) -> Lengths:
    """The lengths of the rollouts whose rows there are. Raises `ValueError` for groups that are not counted from 0."""
    numbers = np.stack([table.column(name).to_numpy() for name in ("group", "rollout")])
    places, steps = np.unique(numbers, axis=1, return_counts=True)
    groups = np.unique(places[0])
    if not len(groups) or not np.array_equal(groups, np.arange(len(groups))):
        raise ValueError("its groups are not numbered from 0 on")
    return [steps[places[0] == number].tolist() for number in groups]


def _plain_columns(table: pa.Table) -> pa.Table:
    """The table with types as `write_columns` has them: pandas writes large texts, and null for what is all missing."""
    for place, name in enumerate(table.schema.names):
        kind = str(_plain(table.schema.types[place]))
        if kind != str(_type(name)) and ("large_" in kind or "null" in kind or "element: " in kind):
            table = table.set_column(place, name, table.column(name).cast(_type(name)))
    return table


def require_anchor(path: Path, header: Row, anchor: str | None) -> None:
    """Raise `DataError` where the anchors of a file are known to be others than `anchor`; None accepts all."""
    if anchor is not None and header["anchor"] not in (None, anchor):
        raise DataError(
            f"{path} has anchors {shown(header['anchor'])}, and {anchor!r} is wanted: record it again with the option "
            f"anchor={anchor.rpartition('-')[0]}; {REMEDY}"
        )


def _fault(table: pa.Table) -> str:
    """What is wrong with the columns of a file, or "".

    It has all step columns, and all or none of the turn columns. Each has its type and no missing values.
    """
    import pyarrow.compute as pc

    columns = table.schema.names
    turn = TURN_COLUMNS if set(TURN_COLUMNS) & set(columns) else {}
    for name in (*STEP_COLUMNS, *turn, *(OPTIONAL_COLUMNS.keys() & set(columns))):
        if name not in columns:
            return f"it has no column {name!r}"
        column = table.column(name)
        kind = _plain(column.type)
        if kind != _type(name):
            return f"column {name!r} is of type {str(kind)[:80]}, not {_type(name)}"
        if column.null_count and name != "final_anchor":
            return f"column {name!r} has no value in {column.null_count} rows"
        if COLUMNS[name] == "double" and (row := _odd_number(name, column.to_numpy())) is not None:
            place = ", ".join(f"{part} {table.column(part)[row]}" for part in ("group", "rollout", "step"))
            expected = "a number from 0 to 1" if name == "score" else "a finite number"
            return f"{name} of {place} is {column[row]}, not {expected}"
        if COLUMNS[name] == "numbers" and not np.isfinite(pc.list_flatten(column).to_numpy()).all():
            return f"column {name!r} has a value that is no finite number"
    return ""


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries, which only tell how the values are stored."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return kind


def _odd_number(name: str, values: NDArray[np.float64]) -> int | None:
    """The first row with NaN, an infinite number, or a score outside 0 to 1."""
    wrong = ~np.isfinite(values)
    if name == "score":
        wrong |= (values < 0) | (values > 1)
    return int(wrong.argmax()) if wrong.any() else None


# ---- the seal: a digest in the gap before the footer, which readers of Parquet pass over -------------------------
#
# Pages of Parquet carry checksums, but its footer and the headers of pages carry none: a changed byte there can name
# another environment, or read one column as another. So the seal is a digest of the footer, and the footer has one of
# each row group. In older files the seal is one of the whole file. A file that somebody's tool wrote again has no seal:
# a warning says so, and its contents alone are checked.

MARK, WHOLE_MARK = b"\xffcrbc\xfe\xfd\xfb", b"\xffcrbc\xfe\xfd\xfc"
"""They begin the seal of a footer, and that of a whole file. Being no UTF-8, they are in no text of a recording."""
PARTS = "crbc_parts"
"""The key of the footer's metadata with the end of each row group in the file, and its digest."""

_DIGEST = 16
_TAIL = 8
"""The last bytes of a Parquet file: the length of the footer, and a mark."""


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _footer(content: bytes | mmap.mmap) -> int:
    """Where the footer begins."""
    return len(content) - _TAIL - int.from_bytes(content[-_TAIL:-4], "little")


def sealed(content: bytes) -> bytes:
    """A Parquet file with its seal."""
    at = _footer(content)
    return content[:at] + MARK + _digest(content[at:]) + content[at:]


def seal_of(content: mmap.mmap) -> bytes | None:
    """The mark of a file's seal, None where it has none. Raises `ValueError` where it is not as it was sealed."""
    end = _footer(content)
    at = end - len(MARK) - _DIGEST
    mark = content[at : at + len(MARK)] if at >= 0 else b""
    if mark not in (MARK, WHOLE_MARK):
        return None
    before = content[:at] if mark == WHOLE_MARK else b""
    if _digest(before, content[end:]) != content[at + len(MARK) : end]:
        raise ValueError("it is not as it was written: its digest differs")
    return mark


def check_parts(content: mmap.mmap, metadata: pq.FileMetaData, groups: Sequence[int]) -> None:
    """Raise `ValueError` where a row group of `groups` is not as the footer says, or the last ends not at the seal."""
    parts = parse_json(metadata.metadata[PARTS.encode()])
    if len(parts) != metadata.num_row_groups or parts[-1][0] != _footer(content) - len(MARK) - _DIGEST:
        raise ValueError("it is not as it was written: its length differs")
    for number in groups:
        begin, (end, digest) = parts[number - 1][0] if number else 0, parts[number]
        if _digest(content[begin:end]).hex() != digest:
            raise ValueError(f"it is not as it was written: the digest of group {number} differs")
