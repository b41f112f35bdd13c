"""What a Parquet file would take in memory, told by its footer and page headers before any page is decompressed.

A page's header states its size and its number of values, and a reader allocates what it states. The footer repeats the
sums, but a hostile one may lie. Both are Thrift structures in the compact protocol (https://thrift.apache.org). They
are read here and not by pyarrow, whose process ends at some damaged footers.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import Any

MOST_VALUES = 500_000
"""The most numbers, texts and structures of all headers. A recorded update has a few thousand."""

LONGEST_TEXT = 64
"""Longer texts are passed over. The names of columns are shorter."""

_DEEPEST = 8
_MAGIC = b"PAR1"
_ROWS, _GROUPS = 3, 4
_COLUMNS = 1
_OTHER_FILE, _COLUMN = 1, 3
_PATH, _COUNT_OF_COLUMN, _SIZE, _PAGES_AT, _DICTIONARY_AT = 3, 5, 7, 9, 11
_UNCOMPRESSED, _COMPRESSED, _PARTS, _COUNT = 2, 3, (5, 7, 8), 1
"""Numbers of the fields that matter: of the file, a row group, a column's place, a column, and a page."""


def footprint(content: mmap, wanted: set[str]) -> tuple[int, int]:
    """The rows of a Parquet file, and the bytes that the wanted columns may take: their pages, and eight per value.

    Raises `ValueError` for headers that are damaged or far too many.
    """
    reader = _Reader(content)
    footer = reader.footer()
    total, names = 0, [name.encode() for name in wanted]
    for group in _structs(footer.get(_GROUPS)):
        for place in _structs(group.get(_COLUMNS)):
            column = place.get(_COLUMN)
            if not isinstance(column, dict) or _OTHER_FILE in place:
                raise ValueError("its footer is damaged")
            name = column.get(_PATH)
            if isinstance(name, list) and name[:1] and name[0] in names:
                total += sum(size + 8 * values for size, values in _pages(reader, column))
    return _size(footer, _ROWS), total


def _pages(reader: _Reader, column: dict[int, Any]) -> Iterator[tuple[int, int]]:
    """The size in memory and the number of values of each page of a column."""
    if not _size(column, _COUNT_OF_COLUMN):  # no page of it is read, and its place is none
        return
    start = _size(column, _PAGES_AT)
    dictionary = _size(column, _DICTIONARY_AT) if _DICTIONARY_AT in column else 0
    if 0 < dictionary < start:
        start = dictionary
    reader.at, reader.end = start, start + _size(column, _SIZE)
    if reader.end > reader.size:
        raise ValueError("a column leads outside the file")
    while reader.at < reader.end:
        header = reader.struct()
        parts = [header[part] for part in _PARTS if isinstance(header.get(part), dict)]
        yield _size(header, _UNCOMPRESSED), sum(_size(part, _COUNT) for part in parts)
        reader.at += _size(header, _COMPRESSED)


def _structs(value: Any) -> list[dict[int, Any]]:
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise ValueError("its footer is damaged")
    return value


def _size(fields: dict[int, Any], field: int) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a header is damaged")
    return value


class _Reader:
    """Reads Thrift's compact protocol: structures are dictionaries by field number, and long texts are passed over."""

    def __init__(self, content: mmap) -> None:
        self._content, self._left = content, MOST_VALUES
        self.size = self.end = len(content)
        self.at = 0

    def footer(self) -> dict[int, Any]:
        """The structure before the file's last eight bytes, which are its length and a mark."""
        length = int.from_bytes(self._content[-8:-4], "little")
        if self._content[-4:] != _MAGIC or length > self.size - 8:
            raise ValueError("its footer is missing")
        self.at, self.end = self.size - 8 - length, self.size - 8
        return self.struct()

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            if field in fields:  # pyarrow would merge the two
                raise ValueError("a header is damaged")
            fields[field] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int, in_list: bool = False) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise ValueError(f"its headers have more than {MOST_VALUES:,} values, or are nested too deeply")
        match kind:
            case 1 | 2:  # a boolean, which a field has in its head
                return self._byte() if in_list else kind
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 7:
                return self._text(8)
            case 8:
                return self._text(self._varint())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 != 15 else self._varint()
                return [self._value(head & 15, depth + 1, in_list=True) for _ in range(count)]
            case 12:
                return self.struct(depth + 1)
        raise ValueError("a header is damaged")

    def _byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("a header is cut short")
        self.at += 1
        return self._content[self.at - 1]

    def _text(self, length: int) -> bytes:
        self.at += length
        return self._content[self.at - length : self.at] if length <= LONGEST_TEXT and self.at <= self.end else b""

    def _varint(self) -> int:
        value = 0
        for place in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << place
            if byte < 128:
                return value
        raise ValueError("a header is damaged")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
