"""`crbc results rebuild`: makes every table and figure of a document anew, from what is kept of trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from crbc_lab.studies.comparison.document import MARK, rebuilt
from crbc_rl.config.shipped import shipped
from crbc_rl.errors import ConfigError
from crbc_rl.runs.lines import replace_file

DOCUMENT = shipped() / "docs" / "results.md"


def rebuild(results: Path, document: Path | None, console: Console) -> None:
    """Rebuild `document`, and the pictures in a folder of its name. Raises `ConfigError` where it has no mark."""
    path = DOCUMENT if document is None else document
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; name a document with --doc, with <!-- results: STUDY/SCALE/SETTING -->"
        )
    text = path.read_text(encoding="utf-8")
    if not MARK.search(text):
        raise ConfigError(f"{path} has no part to make: write <!-- results: main/lab/sokoban --> and <!-- end -->")
    drawn: list[str] = []

    def picture(name: str, title: str, draw: Callable[[Path], None]) -> str:
        draw(path.with_suffix("") / f"{name}.png")
        drawn.append(name)
        return f"![{title}]({path.stem}/{name}.png)"

    replace_file(path, rebuilt(text, results, picture).encode())
    console.print(f"wrote {escape(str(path))} and {len(drawn)} pictures", soft_wrap=True, highlight=False)
