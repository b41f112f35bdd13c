"""The paper's tables of results as data: `tables.yaml`, typed from the LaTeX source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

KINDS = ("Pick", "Clean", "Cool", "Look", "Heat", "Pick2")
"""ALFWorld's kinds of tasks, in the order of the tables' columns."""
TRAJECTORIES = 128
"""Validation trajectories of every run; the paper, table of environment-level settings."""


@dataclass(frozen=True, slots=True)
class PrintedValue:
    """A printed figure. `mean` and `sd` are the digits as printed; `sd` is empty where there is none."""

    mean: str
    sd: str = ""
    bold: bool = False

    @classmethod
    def read(cls, word: str) -> PrintedValue | None:
        """ "85.27±1.40*" as a cell, with an asterisk for bold print; None for "---"."""
        mean, _, sd = word.removesuffix("*").partition("±")
        return None if mean == "---" else cls(mean, sd, word.endswith("*"))

    @property
    def value(self) -> float:
        return float(self.mean)

    @property
    def rounded(self) -> bool:
        """Whether it may have been rounded to one decimal: all digits printed end in 0."""
        return self.mean.endswith("0") and (not self.sd or self.sd.endswith("0"))

    def __str__(self) -> str:
        return f"{self.mean}±{self.sd}" if self.sd else self.mean


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: cells by column, without the empty ones."""

    table: str
    block: str
    method: str
    cells: dict[str, PrintedValue]

    @property
    def name(self) -> str:
        return f"{self.block}, {self.method}"

    @property
    def copied(self) -> bool:
        """Whether every cell has one decimal and a zero behind it, as no row that was computed here has."""
        return all(cell.rounded for cell in self.cells.values())

    @property
    def half(self) -> float:
        """Half a unit of the last decimal: how far a printed figure may be from its value."""
        return 0.05 if self.copied else 0.005

    @property
    def has_kinds(self) -> bool:
        return set(KINDS) <= set(self.cells)

    @property
    def overall(self) -> str:
        """The column of the success over all tasks: "All" or "Succ."."""
        return "All" if "All" in self.cells else "Succ."


@cache
def rows() -> tuple[Row, ...]:
    """Every row of every table."""
    return tuple(_rows())


def row(table: str, block: str, method: str) -> Row:
    """One row. Raises `KeyError` where there is none."""
    for one in rows():
        if (one.table, one.block, one.method) == (table, block, method):
            return one
    raise KeyError((table, block, method))


def _rows() -> Iterator[Row]:
    text = files("crbc_lab.studies.paper").joinpath("tables.yaml").read_text(encoding="utf-8")
    for table in yaml.safe_load(text):
        for block in table["blocks"]:
            for method, line in block["rows"].items():
                cells = zip(table["columns"], map(PrintedValue.read, line.split()), strict=True)
                filled = {column: cell for column, cell in cells if cell is not None}
                yield Row(table["label"], block["name"], method, filled)
