"""Reads a JSON file of any size one entry at a time: the full catalogue is several gigabytes of one array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import ProgressCallback
from crbc_envs.webshop.products.catalogue import MEND

_CHUNK = 1 << 20
_LONGEST = 1 << 26
"""No entry of a sound file is nearly as long, in characters: a broken one is not read to its end."""
_ENDS = ",:]} \t\r\n"


def array_entries(
    path: Path, on_progress: ProgressCallback = lambda done, total: None, chunk: int = _CHUNK
) -> Iterator[Any]:
    """The entries of a file that holds one JSON array. `tell` hears of the bytes that were read.
    Raises `DataError` where the file is anything else."""
    with path.open(encoding="utf-8") as file:
        reader = _Reader(path, file, on_progress, chunk)
        for _ in reader.items("[", "]"):
            yield reader.value()


def object_entries(
    path: Path, on_progress: ProgressCallback = lambda done, total: None, chunk: int = _CHUNK
) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of a file that holds one JSON object; otherwise as `array_entries`."""
    with path.open(encoding="utf-8") as file:
        reader = _Reader(path, file, on_progress, chunk)
        for _ in reader.items("{", "}"):
            key = reader.value()
            reader.expect(":")
            yield key, reader.value()


class _Reader:
    """A window on the file that moves on as values are taken from it."""

    def __init__(self, path: Path, file: TextIO, on_progress: ProgressCallback, chunk: int) -> None:
        self._path = path
        self._file = file
        self._on_progress = on_progress
        self._size = path.stat().st_size
        self._chunk = chunk
        self._text = ""
        self._at = 0
        self._entry = 0
        self._decode = json.JSONDecoder().raw_decode

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Once per item between the brackets, which the caller then takes; nothing may follow the last bracket."""
        self.expect(opening)
        if self._peek() != closing:
            yield
            while self._peek() == ",":
                self._at += 1
                self._entry += 1
                yield
        self.expect(closing)
        if self._peek():
            raise self._broken("something follows the end")

    def expect(self, mark: str) -> None:
        found = self._peek()
        if found != mark:
            raise self._broken(f"expected {mark!r}, found {found!r}" if found else f"expected {mark!r}, the file ends")
        self._at += 1

    def value(self) -> Any:
        """The next value. One that reaches the end of the window is read again in a wider one."""
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._widen():
                    raise self._broken(error.msg) from error
            except RecursionError as error:
                raise self._broken("too many brackets open") from error
            else:
                follows = self._text[end : end + 1]  # "1" may go on as "1.5" or "12"
                if (follows and follows in _ENDS) or not self._widen():
                    self._at = end
                    return value

    def _peek(self) -> str:
        """The next character that is not white space, "" at the end of the file."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._widen():
                return ""

    def _widen(self) -> bool:
        """Drops what was taken and reads on; False at the end of the file."""
        if len(self._text) - self._at > _LONGEST:
            raise self._broken("an entry does not end")
        try:
            more = self._file.read(self._chunk)
        except UnicodeDecodeError as error:
            raise self._broken("not UTF-8 text") from error
        self._on_progress(self._file.buffer.tell(), self._size)
        self._text = self._text[self._at :] + more
        self._at = 0
        return bool(more)

    def _broken(self, why: str) -> DataError:
        return DataError(f"{self._path}: not the JSON file it should be, at entry {self._entry}: {why}; {MEND}")
