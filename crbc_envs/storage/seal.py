"""A digest of a whole Parquet file, in the gap before its footer, which readers of Parquet pass over.

Pages of Parquet carry checksums, but its footer and the headers of pages carry none: a changed byte there can name
another environment, or read one column as another. A file that somebody's tool wrote again has no seal: a warning says
so, and its contents alone are checked.
"""

from __future__ import annotations

from hashlib import blake2b
from mmap import mmap

MARK = b"\xffcrbc\xfe\xfd\xfc"
"""Begins the seal. It is no UTF-8, so no text of a recording holds it."""

_DIGEST = 16
_TAIL = 8
"""The last bytes of a Parquet file: the length of the footer, and a mark."""


def _footer(content: bytes | mmap) -> int:
    """Where the footer begins."""
    return len(content) - _TAIL - int.from_bytes(content[-_TAIL:-4], "little")


def sealed(content: bytes) -> bytes:
    """A Parquet file with its seal."""
    at = _footer(content)
    return content[:at] + MARK + blake2b(content, digest_size=_DIGEST).digest() + content[at:]


def is_sealed(content: mmap) -> bool:
    """Whether a file has a seal. Raises `ValueError` where it is not as it was sealed."""
    end = _footer(content)
    at = end - len(MARK) - _DIGEST
    if at < 0 or content[at : at + len(MARK)] != MARK:
        return False
    digest = blake2b(content[:at], digest_size=_DIGEST)
    digest.update(content[end:])
    if digest.digest() != content[at + len(MARK) : end]:
        raise ValueError("it is not as it was written: its digest differs")
    return True
