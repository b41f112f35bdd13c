"""The Parquet file behind `crbc_envs.storage.rollouts`: its columns and header, writing, reading and checks.

The schema's metadata hold one JSON object under "crbc": the format version, the environment id, and the
number of steps of every rollout. The latter shows whether a row was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchors import ANCHOR_VERSION
from crbc_envs.errors import DataError
from crbc_envs.storage.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

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
ADDED = {"score"}
"""Columns that older files do not have."""
TURN_COLUMNS = {"prompt": "string", "reply": "string", "logprob": "double", "prompt_ids": "ids", "reply_ids": "ids"}
IMAGE_COLUMNS = {"image": "image"}
COLUMNS = STEP_COLUMNS | TURN_COLUMNS | IMAGE_COLUMNS

REMEDY = "`crbc train CONFIG --set record_every=10` writes such files into RUN/rollouts"


def write_columns(path: Path, columns: Mapping[str, Any], env_id: str, lengths: Lengths) -> None:
    """Write columns of equal length to a temporary file, then rename it to `path`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = {"version": RECORD_VERSION, "anchor_version": ANCHOR_VERSION, "env_id": env_id, "lengths": lengths}
    metadata = {"crbc": json.dumps(header)}
    if "image" in columns:  # makes `datasets` decode the column as images
        metadata["huggingface"] = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    schema = pa.schema([(name, _type(name)) for name in COLUMNS if name in columns], metadata=metadata)
    table = pa.Table.from_pydict(dict(columns), schema=schema)

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def read_rows(path: Path, wanted: Iterable[str]) -> tuple[list[Row], str, Lengths]:
    """The rows with the `wanted` columns that the file has, the environment id, and the rollout lengths.

    Raises `DataError` for a file that is missing, not Parquet, damaged or of another version, and for a wrong
    column. The caller checks which rows there are.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path}: no such file; {REMEDY}")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            header = _header(path, file.schema_arrow)
            table = file.read([name for name in wanted if name in file.schema_arrow.names])
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is damaged, cut short or no Parquet file ({reason}); {REMEDY}") from error
    _check_columns(path, table)
    return table.to_pylist(), header["env_id"], header["lengths"]


def _type(name: str) -> pa.DataType:
    """The Arrow type of a column. All columns are nullable, because `datasets` requires it."""
    import pyarrow as pa

    kind = COLUMNS[name]
    if kind == "ids":
        return pa.list_(pa.int64())
    if kind == "image":  # the storage type of the Image feature of `datasets`
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.type_for_alias(kind)


def _header(path: Path, schema: pa.Schema) -> Row:
    text = (schema.metadata or {}).get(b"crbc")
    if text is None:
        raise DataError(f"{path} is a Parquet file without recorded rollouts; {REMEDY}")
    damaged = DataError(f"{path}: its header is damaged; {REMEDY}")
    try:
        header = json.loads(text)
    except ValueError as error:
        raise damaged from error
    if not isinstance(header, dict):
        raise damaged
    if header.get("version") != RECORD_VERSION:
        raise DataError(
            f"{path} is of record version {header.get('version')}, this crbc reads version {RECORD_VERSION}: "
            f"read it with the crbc that wrote it, or record it again; {REMEDY}"
        )
    if not {"env_id", "lengths"} <= set(header):
        raise damaged
    return header


def _check_columns(path: Path, table: pa.Table) -> None:
    """A file has all step columns, and all or none of the turn columns. Each has its type and no missing values."""
    found = table.schema.names
    turn = TURN_COLUMNS if set(TURN_COLUMNS) & set(found) else {}
    for name in (*STEP_COLUMNS, *turn, *(IMAGE_COLUMNS if "image" in found else {})):
        if name not in found:
            if name in ADDED:
                continue
            raise DataError(f"{path}: it has no column {name!r}; {REMEDY}")
        column = table.column(name)
        if column.type != _type(name):
            raise DataError(f"{path}: column {name!r} is of type {column.type}, not {_type(name)}; {REMEDY}")
        if column.null_count and name != "final_anchor":
            raise DataError(f"{path}: column {name!r} has no value in {column.null_count} rows; {REMEDY}")
