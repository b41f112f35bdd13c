"""Findings: what is installed on this machine, and the command that installs what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from crbc_envs.errors import install, install_extra, version


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


def package(name: str, extra: str, purpose: str, optional: bool = False) -> Finding:
    """Whether a package of one of our extras ("": of none) is installed."""
    found = version(name)
    fix = "" if found else install_extra(extra) if extra else install(name)
    return Finding(name, found or "-", fix, purpose, optional)
