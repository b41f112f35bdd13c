"""`crbc init NAME`: a small installable package with an environment, its test, configs and a README."""

from __future__ import annotations

import keyword
import re
import site
import sys
from importlib.machinery import PathFinder
from importlib.resources import files
from pathlib import Path
from string import Template

import gymnasium

from crbc_envs.errors import requirement
from crbc_envs.storage.files import refuse_link, replacing_folder
from crbc_rl.errors import ConfigError

PLACES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "init.py": "{name}/__init__.py",
    "env.py": "{name}/env.py",
    "test_env.py": "tests/test_env.py",
    "train.yaml": "configs/train.yaml",
    "warmstart.yaml": "configs/warmstart.yaml",
}
"""Where each file of `skeleton/` goes; there, names end with ".txt", since they are not modules of ours."""


def init(name: str, folder: Path) -> Path:
    """Write the package `name` into the new folder `folder`/`name`, and return that folder.

    Raises `ConfigError` for a name that no package can have, and where the folder exists; `DataError` where it is a
    link.
    """
    if not re.fullmatch(r"[a-z]([a-z0-9_]{0,48}[a-z0-9])?", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} is no package name: use up to 50 lower-case letters, digits and _, as in my_env")
    ours = ("anchors", "crbc_envs", "crbc_rl", "crbc_lab", "configs", "tests")
    if name in sys.stdlib_module_names or name in ours or PathFinder.find_spec(name, site.getsitepackages()):
        raise ConfigError(f"{name!r} is the name of another module: choose another")
    env_id = "".join(part.capitalize() for part in name.split("_")) + "-v0"
    if env_id in gymnasium.registry:
        raise ConfigError(f"{env_id} is registered already: choose another name")
    target = refuse_link(folder / name)
    if target.exists():
        raise ConfigError(f"{target} exists already: choose another name, or another folder with --folder")
    words = {
        "name": name,
        "env_id": env_id,
        "cls": env_id.removesuffix("-v0") + "Env",
        "install": f'`pip install "{requirement("train")}"`',
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing_folder(target) as fresh:
        for source, place in PLACES.items():
            path = fresh / place.format(name=name)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = files("crbc_lab.commands").joinpath("skeleton", f"{source}.txt").read_text(encoding="utf-8")
            path.write_text(Template(text).substitute(words), encoding="utf-8")
    return target
