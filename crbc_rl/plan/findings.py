"""What was looked for on this machine, and the command that installs it where it is missing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for: what was found, or the command that brings it."""

    name: str
    found: str
    fix: str = ""
    needed_for: str = "everything"
    optional: bool = False
    """Whether one can do without it: shown, and never counted as missing."""

    @property
    def ok(self) -> bool:
        return not self.fix


def package(name: str, extra: str, purpose: str) -> Finding:
    try:
        return Finding(name, metadata.version(name), "", purpose)
    except metadata.PackageNotFoundError:
        return Finding(name, "-", f"pip install 'crbc{extra}'", purpose)
