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


class FileError(DataError):
    """A `DataError` about one file, or what stands for it: its path, and the reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)  # both, or it could not be pickled
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class RequirementError(RuntimeError):
    """A package or program that an environment needs is missing.

    It is raised when the environment is made, never during an episode. The message names what is missing and
    the command that installs it. The `crbc` command prints the message without a traceback.
    """


class EnvError(TypeError):
    """What somebody's environment, or a function given to it, returned is of the wrong kind.

    The message names the environment, the step, what came back and what to return. The `crbc` command prints it
    without a traceback.
    """


class BrowserError(RequirementError):
    """No browser was found, or the browser keeps exiting."""


UNKNOWN = "/path/to/crbc"
"""Stands in a command for the clone or the wheel of this package, where neither is known. The package index is never
asked for the name "crbc", since anybody may register it there."""


def install(*packages: str) -> str:
    """The command that installs packages into the environment of this interpreter."""
    return shlex.join([*_pip("install"), *packages])


def install_extra(extra: str, *options: str) -> str:
    """The command that adds an extra of this package ("": none), from where the package itself was installed.

    That is a clone, a wheel's file or an address. Where it is unknown, the command has `UNKNOWN` and says so.
    """
    required = requirement(extra)
    editable = ["-e"] if Path(required.partition("[")[0], "pyproject.toml").is_file() else []
    note = f" (with your clone or wheel of crbc for {UNKNOWN})" if required.startswith(UNKNOWN) else ""
    return install(*options, *editable, required) + note


def requirement(extra: str) -> str:
    """What to ask an installer for: this package with an extra, "PATH[extra]" or "crbc[extra] @ ADDRESS"."""
    extras = f"[{extra}]" if extra else ""
    source = str(_clone() or _source())
    return f"crbc{extras} @ {source}" if "://" in source else f"{source}{extras}"


def remove_stranger() -> str:
    """The command that mends what the unrelated package `anchors` of the package index does here; "" without it.

    Its files have the names of ours: it hides them, or has replaced them.
    """
    if version("anchors") is None:
        return ""
    remove = shlex.join([*_pip("uninstall", "-y"), "anchors"])
    return remove if _clone() else f"{remove} && {install_extra('', '--force-reinstall', '--no-deps')}"


def packages(extra: str) -> list[str]:
    """The packages that an extra asks for beyond the core dependencies; with "", the latter."""
    from importlib import metadata  # slow to import, and only messages need it

    names = []
    for line in metadata.requires("crbc") or ():
        marker = re.search(r"""extra == ['"]([\w-]+)['"]""", line)
        if (marker[1] if marker else "") == extra:
            names.append(re.split(r"[^\w.-]", line, maxsplit=1)[0])
    return names


def version(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _pip(command: str, *options: str) -> list[str]:
    """A command of pip's, or of uv's in an environment that uv made."""
    if find_spec("pip") is None:
        return ["uv", "pip", command, "--python", sys.executable]
    return [sys.executable, "-m", "pip", command, *options]


def _clone() -> Path | None:
    """The clone that this package is imported from; None where it is installed."""
    root = Path(__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


def _source() -> str:
    """The file, folder or address that this package was installed from (PEP 610); `UNKNOWN` where none is recorded."""
    from importlib import metadata
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    try:
        record = json.loads(metadata.distribution("crbc").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return UNKNOWN
    url, repository = record.get("url", ""), record.get("vcs_info")
    if repository:
        return f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return url2pathname(urlparse(url).path) if url.startswith("file:") else url or UNKNOWN
