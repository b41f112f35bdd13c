"""The version of the package, for the package index, run folders and `crbc --version`, and the commit of a clone."""

import subprocess
from pathlib import Path

__version__ = "0.1.0"


def commit() -> str:
    """The commit of the clone that runs, with "+" behind it where files differ from it. Empty where it is no clone."""
    package = Path(__file__).parent
    command = ["git", "-C", str(package.parent), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    if (package / "shipped").is_dir():  # installed; a repository around it is another project's
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
