"""Anchor keys: map an environment's representation of a situation to a short, stable key. And the kinds of anchor.

Two situations have the same anchor exactly when their payloads are equal (paper, appendix
"Environment Details", anchor construction).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

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
    on its memory layout and byte order: a transposed view and its copy have the same key. -0.0 and 0.0 have two keys:
    add 0.0 to numbers that were rounded.

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


# ---- kinds: what the key of a situation is made of. Environments take one as their option `anchor` ----------------

AnchorKind = Literal["paper", "situation", "observation", "state"]
"""What an anchor is the key of.

"paper": the current observation with all that the environment adds to it, after an invalid reply too.
"situation": the same, but an invalid reply keeps the key of before.
"observation": the bare observation, without what the environment adds.
"state": the exact state, whatever the agent sees of it.
"""

ANCHOR_KINDS: tuple[AnchorKind, ...] = get_args(AnchorKind)

OWN = "own"
"""The kind of an environment that leaves no choice."""


def check_anchor_kind(kind: object) -> None:
    """Raise `ValueError` for anything but one of `ANCHOR_KINDS`."""
    if kind not in ANCHOR_KINDS:
        raise ValueError(f"anchor must be one of {', '.join(ANCHOR_KINDS)}; got {kind!r}")


def anchor_name(kind: str, versions: Mapping[str, int]) -> str:
    """Kind and version in one word: "situation-1". Keys of two names must not be compared."""
    return f"{kind}-{versions.get(kind, 1)}"
