"""The configs and warm starts that come with the package, by name: `crbc train sokoban-tiny` works in any folder.

In a clone they are `configs/` and `warmstarts/`; the wheel holds both in `crbc_rl/shipped/`.
"""

from __future__ import annotations

from pathlib import Path

from crbc_rl.errors import ConfigError, nearest

_PACKAGE = Path(__file__).resolve().parents[1]
STUDIES = "studies"
"""The folder of configs that are no trainings, but name several."""


def shipped() -> Path:
    """The folder that holds `configs` and `warmstarts`."""
    inside = _PACKAGE / "shipped"
    return inside if inside.is_dir() else _PACKAGE.parent


def names() -> dict[str, Path]:
    """The shipped configs by name: "sokoban-tiny", "paper/webshop-qwen2.5-7b"."""
    folder = shipped() / "configs"
    paths = [path for path in sorted(folder.rglob("*.yaml")) if path.parent.name != STUDIES]
    return {_name(path.relative_to(folder).with_suffix("").as_posix()): path for path in paths}


def studies() -> list[str]:
    """The names of the shipped studies, each a file of `configs/studies`."""
    return sorted(path.stem for path in (shipped() / "configs" / STUDIES).glob("*.yaml"))


def find_config(given: Path) -> Path:
    """The file `given`, or the shipped config of that name; `-` and `_` are the same there.

    Raises `ConfigError` where it is neither, with the nearest name.
    """
    if given.exists() or not str(given):
        return given
    known = names()
    short = _name(given.as_posix().removesuffix(".yaml"))
    if short in known:
        return known[short]
    if given.suffix in (".yaml", ".yml", ".json"):
        others = [path.name for path in given.parent.glob("*.y*ml")] if given.parent.is_dir() else []
        raise ConfigError(f"{given}: No such file{nearest(given.name, others) if others else ''}")
    raise ConfigError(
        f"no config {str(given)!r}: no such file, and none of that name comes with crbc{nearest(short, known)}"
    )


def installed(path: Path) -> bool:
    """Whether a config is a file of the installed package, beside which nothing may be written."""
    return path.resolve().is_relative_to(_PACKAGE / "shipped")


def _name(text: str) -> str:
    return text.replace("_", "-").lower()
