"""One attack: what is laid out, what a victim then does with it, and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

HERE, OUTSIDE = "here", "outside"
"""The folders of a case: the victim works in the first, and nothing in the second may change."""
RAN = "ran"
"""The file in `OUTSIDE` that code of the attacker makes, when it runs."""


def nothing(folder: Path) -> None:
    """No further files are needed, or no further check."""


@dataclass(frozen=True)
class Case:
    """An attack.

    `make` fills FOLDER/here; FOLDER/outside holds "precious.txt" already. `serve` runs a server meanwhile, and gives
    its address. The victim either types the command `crbc ARGV` in FOLDER/here, or calls `probe` with FOLDER. In
    `argv`, "{url}", "{here}" and "{outside}" are replaced.

    The outcome must have the exit status `status` and its output all words of `says` (in lower case, blanks and
    line breaks as one blank), and none of `never`. `check` looks at FOLDER afterwards, and raises `AssertionError`.
    """

    name: str
    finding: str
    """The part of the issue that it belongs to, in a few words: "archive headers"."""
    status: int
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    make: Callable[[Path], None] = nothing
    argv: tuple[str, ...] = ()
    probe: Callable[[Path], None] | None = None
    serve: Callable[[], AbstractContextManager[str]] = nullcontext  # type: ignore[assignment]
    check: Callable[[Path], None] = nothing
    env: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
