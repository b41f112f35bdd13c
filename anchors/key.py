"""Anchor keys: map an environment's representation of a situation to a short, stable key.

Two situations have the same anchor exactly when their payloads are equal (paper, appendix
"Environment Details", anchor construction).
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

ANCHOR_VERSION = 1
"""Increased whenever the bytes behind a key change. Keys of two versions never compare equal."""

_PLAIN = "biufcSU"
"""The dtype kinds whose name defines the meaning of their bytes: booleans, numbers, fixed-width text."""

_PERSON = b"crbc-anchor-%d" % ANCHOR_VERSION


def anchor_key(payload: str | bytes | NDArray[np.generic]) -> str:
    """The key of `payload`: 32 hex digits, equal on every machine, in every process and run.

    Text, bytes and arrays never collide with each other. The key of an array depends on its dtype and shape, but not
    on its memory layout and byte order: a transposed view and its copy have the same key.

    Raises `TypeError` for any other type, and for arrays of anything but booleans, numbers and text.
    """
    digest = hashlib.blake2b(digest_size=16, person=_PERSON)
    if isinstance(payload, str):
        # A model's text may contain lone surrogates, which plain UTF-8 cannot encode.
        digest.update(b"str:" + payload.encode("utf-8", "surrogatepass"))
    elif isinstance(payload, bytes):
        digest.update(b"bytes:" + payload)
    elif isinstance(payload, np.ndarray) and payload.dtype.kind in _PLAIN and not np.ma.isMaskedArray(payload):
        little = payload.astype(payload.dtype.newbyteorder("<"), order="C", copy=False)
        digest.update(f"array:{little.dtype.str}:{little.shape}:".encode())
        digest.update(little.data if little.size else b"")
    else:
        kind = f"array of {payload.dtype}" if isinstance(payload, np.ndarray) else type(payload).__name__
        raise TypeError(f"an anchor is made from str, bytes or an array of numbers or text, not from {kind}")
    return digest.hexdigest()
