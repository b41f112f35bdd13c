"""The kinds of anchor: what the key of a situation is made of. Environments take one as their option `anchor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

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
