"""The paper's tables of results as data, `paper_tables.yaml`, typed from the LaTeX source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class PrintedValue:
    """A printed figure. `mean` and `sd` are the digits as printed; `sd` is empty where there is none."""

    mean: str
    sd: str = ""

    @classmethod
    def read(cls, word: str) -> PrintedValue | None:
        """ "85.27±1.40*" as a cell, without the asterisk of bold print; None for "---"."""
        mean, _, sd = word.removesuffix("*").partition("±")
        return None if mean == "---" else cls(mean, sd)

    @property
    def value(self) -> float:
        return float(self.mean)

    def __str__(self) -> str:
        return f"{self.mean}±{self.sd}" if self.sd else self.mean


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: cells by column, without the empty ones."""

    table: str
    block: str
    method: str
    cells: dict[str, PrintedValue]


@cache
def rows() -> tuple[Row, ...]:
    """Every row of every table."""
    return tuple(_rows())


def _rows() -> Iterator[Row]:
    text = Path(__file__).with_name("paper_tables.yaml").read_text(encoding="utf-8")
    for table in yaml.safe_load(text):
        for block in table["blocks"]:
            for method, line in block["rows"].items():
                cells = zip(table["columns"], map(PrintedValue.read, line.split()), strict=True)
                filled = {column: cell for column, cell in cells if cell is not None}
                yield Row(table["label"], block["name"], method, filled)
