"""`ConfigError`, which most commands raise, and the hint at the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ConfigError(ValueError):
    """A config, a run folder or a model folder is wrong or missing.

    The message names the file or key, what is wrong, and what to change. The `crbc` command prints it without a
    traceback and exits with status 2.
    """


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of a message about an unknown name: the nearest known one, or all of them if none is near."""
    by_lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else f"; known: {', '.join(sorted(by_lower.values()))}"
