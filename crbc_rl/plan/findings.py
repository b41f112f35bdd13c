"""Findings: what is installed on this machine, and the command that installs what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, or in `fix` the command that installs it."""

    name: str
    found: str
    fix: str = ""
    needed_for: str = "everything"
    optional: bool = False
    """Whether it is optional: shown, but not counted as missing."""

    @property
    def ok(self) -> bool:
        return not self.fix


def package(name: str, extra: str, purpose: str) -> Finding:
    try:
        return Finding(name, metadata.version(name), "", purpose)
    except metadata.PackageNotFoundError:
        return Finding(name, "-", f"pip install 'crbc{extra}'", purpose)
