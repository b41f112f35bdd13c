"""The findings in the terminal, and as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crbc_lab.studies.paper.check import Section, markdown


def show(sections: Sequence[Section], console: Console) -> None:
    """Print each finding with its table."""
    for section in sections:
        console.print(f"[bold]{escape(section.title)}[/bold]")
        console.print(escape(section.about), highlight=False)
        table = Table(box=SIMPLE_HEAD)
        for head in section.heads:
            table.add_column(escape(head))
        for line in section.rows:
            table.add_row(*map(escape, line))
        console.print(table)


def to_json(sections: Sequence[Section]) -> str:
    """All findings as one JSON text."""
    return json.dumps({"sections": [asdict(section) for section in sections]}, indent=1, ensure_ascii=False)


def write(sections: Sequence[Section], folder: Path) -> tuple[Path, Path]:
    """Write FOLDER/paper_tables.md and .json, and make the folder. Returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / "paper_tables.md", folder / "paper_tables.json"
    page.write_text(markdown(sections), encoding="utf-8")
    data.write_text(to_json(sections) + "\n", encoding="utf-8")
    return page, data
