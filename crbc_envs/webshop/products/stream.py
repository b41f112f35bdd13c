"""Reads a JSON file entry by entry, because the full catalogue is one array of several gigabytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import ProgressCallback
from crbc_envs.webshop.products.catalogue import FIX

_CHUNK = 1 << 20
_BLANKS = re.compile(r"\s*")
_ENDS = ",:]} \t\r\n"


def array_entries(
    path: Path, on_progress: ProgressCallback = lambda done, total: None, chunk: int = _CHUNK
) -> Iterator[Any]:
    """The entries of a file that holds one JSON array. `on_progress` gets the number of bytes read.

    Raises `DataError` if the file holds anything else.
    """
    with path.open(encoding="utf-8") as file:
        reader = _Reader(path, file, on_progress, chunk)
        for _ in reader.items("[", "]"):
            yield reader.value()


def object_entries(
    path: Path, on_progress: ProgressCallback = lambda done, total: None, chunk: int = _CHUNK
) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of a file that holds one JSON object. Otherwise like `array_entries`."""
    with path.open(encoding="utf-8") as file:
        reader = _Reader(path, file, on_progress, chunk)
        for _ in reader.items("{", "}"):
            key = reader.value()
            reader.expect(":")
            yield key, reader.value()


class _Reader:
    """A sliding window over the file: it drops parsed text and reads more when needed."""

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
        """Yield once per item between the brackets; the caller parses it. Nothing may follow the last bracket."""
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
        symbol = self._peek()
        if symbol != mark:
            raise self._broken(
                f"expected {mark!r}, found {symbol!r}" if symbol else f"expected {mark!r}, the file ends"
            )
        self._at += 1

    def value(self) -> Any:
        """Parse the next value. If it reaches the end of the window, read more and parse it again."""
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._widen():
                    raise self._broken(error.msg) from error
            except ValueError as error:  # a number of thousands of digits
                raise self._broken(str(error)) from error
            except RecursionError as error:
                raise self._broken("too many brackets open") from error
            else:
                follows = self._text[end : end + 1]  # "1" may be the start of "1.5" or "12"
                if (follows and follows in _ENDS) or not self._widen():
                    self._at = end
                    return value

    def _peek(self) -> str:
        """The next character that is not white space; "" at the end of the file."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._widen():
                return ""

    def _widen(self) -> bool:
        """Drop the parsed text and read more. False at the end of the file.

        What is left is doubled at least, so that an entry is not parsed again for each chunk of it.
        """
        try:
            more = self._file.read(max(self._chunk, len(self._text) - self._at))
        except UnicodeDecodeError as error:
            raise self._broken("not UTF-8 text") from error
        self._on_progress(self._file.buffer.tell(), self._size)
        self._text = self._text[self._at :] + more
        self._at = 0
        return bool(more)

    def _broken(self, why: str) -> DataError:
        return DataError(f"{self._path}: not the expected JSON, at entry {self._entry}: {why}; {FIX}")
