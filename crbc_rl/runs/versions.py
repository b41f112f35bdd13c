"""versions.json of a run folder: what made the run, what it plays, and the digest of its config."""

from __future__ import annotations

import json
import logging
import platform
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from anchors import ANCHOR_VERSION
from crbc_envs.storage.files import read_json, replace_file
from crbc_rl.version import __version__

say_once = cache(logging.getLogger(__name__).warning)  # in a process, which opens a run several times
RECORDED = ("torch", "transformers", "tokenizers", "numpy", "scipy", "gymnasium")


def write_config(folder: Path, data: dict[str, Any], kept: dict[str, Any]) -> None:
    """Write a config and, before it, the versions, which have its digest."""
    text = yaml.safe_dump(data, sort_keys=False).encode()
    kept["config"] = sha256(text).hexdigest()
    replace_file(folder / "versions.json", json.dumps(kept, indent=2).encode() + b"\n")
    replace_file(folder / "config.yaml", text)


def read_versions(folder: Path) -> dict[str, str]:
    """The contents of versions.json; nothing where it is missing or damaged, which a warning says."""
    path = folder / "versions.json"
    try:
        return {name: str(value) for name, value in read_json(path).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        say_once(f"{path} is damaged: the versions that made this run are not known")
        return {}


def versions() -> dict[str, str]:
    """Versions of the packages, of Python and of the anchor keys, and the machine type."""
    return {
        "crbc": __version__,
        "anchors": str(ANCHOR_VERSION),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: metadata.version(name) for name in RECORDED},
    }
