"""What a victim does with a case, under limits, in a fork of the warm process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from crbc_lab import cli
from hostile.corpus import CASES

CPU_SECONDS = 10
ADDRESS_SPACE = 4 << 30
"""Bytes that a case may reserve beyond what this process has: a bound for the machine's sake, above the test's."""
CALL = "import sys; from hostile.victim import open_case; open_case(*sys.argv[1:])"


def open_case(name: str, folder: str, *argv: str) -> None:
    """Type the case's command, or call its probe with FOLDER."""
    case, here = CASES[name], str(Path(folder) / "here")
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ADDRESS_SPACE,) * 2)
    os.environ |= case.env | {"HOME": here, "CRBC_DATA": str(Path(here) / "data")}
    if case.probe is None:
        cli.main(argv)
    else:
        with cli.errors_in_one_line():
            case.probe(Path(folder))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
