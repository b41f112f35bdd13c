"""Errors for what is missing on the machine, what is installed there, and the commands that install the rest."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path


class DataError(ValueError):
    """A data file is missing, damaged or of another format.

    The message says what is wrong, in which file, and which command fixes it. The `crbc` command prints the
    message without a traceback.
    """


class RequirementError(RuntimeError):
    """A package or program that an environment needs is missing.

    It is raised when the environment is made, never during an episode. The message names what is missing and
    the command that installs it. The `crbc` command prints the message without a traceback.
    """


class BrowserError(RequirementError):
    """No browser was found, or the browser keeps exiting."""


def install(*packages: str) -> str:
    """The command that installs packages into the environment of this interpreter."""
    installer = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:  # an environment made by uv
        installer = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*installer, *packages])


def install_extra(extra: str) -> str:
    """The command that adds an extra of this package, from where the package itself was installed.

    That is a clone or a wheel's file, which the package index cannot replace. Where it is unknown, the command names
    the package and the index is asked.
    """
    wanted = requirement(extra)
    return install("-e", wanted) if Path(wanted.partition("[")[0], "pyproject.toml").is_file() else install(wanted)


def requirement(extra: str) -> str:
    """What to ask an installer for: this package with an extra, "PATH[extra]" or "crbc[extra]"."""
    root = Path(__file__).resolve().parents[1]
    return f"{root if (root / 'pyproject.toml').is_file() else _source()}[{extra}]"


def packages(extra: str) -> list[str]:
    """The packages that an extra asks for beyond the core dependencies; with "", the latter."""
    from importlib import metadata  # slow to import, and only messages need it

    found = []
    for line in metadata.requires("crbc") or ():
        marker = re.search(r"""extra == ['"]([\w-]+)['"]""", line)
        if (marker[1] if marker else "") == extra:
            found.append(re.split(r"[^\w.-]", line, maxsplit=1)[0])
    return found


def version(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _source() -> str:
    """The wheel or the folder that this package was installed from (PEP 610); its name where that is unknown."""
    from importlib import metadata
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    try:
        record = metadata.distribution("crbc").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return "crbc"
    url = urlparse(json.loads(record)["url"] if record else "")
    return url2pathname(url.path) if url.scheme == "file" else "crbc"
