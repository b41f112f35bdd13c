"""The paper's tables of results as data, `tables.yaml`, typed from the LaTeX source; and what its text claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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

    @property
    def name(self) -> str:
        return f"{self.block}, {self.method}"


@cache
def rows() -> tuple[Row, ...]:
    """Every row of every table."""
    return tuple(_rows())


def row(table: str, block: str, method: str) -> Row:
    """One row. Raises `KeyError` where there is none."""
    return {(one.table, one.block, one.method): one for one in rows()}[table, block, method]


def _rows() -> Iterator[Row]:
    text = files("crbc_lab.studies.paper").joinpath("tables.yaml").read_text(encoding="utf-8")
    for table in yaml.safe_load(text):
        for block in table["blocks"]:
            for method, line in block["rows"].items():
                cells = zip(table["columns"], map(PrintedValue.read, line.split()), strict=True)
                filled = {column: cell for column, cell in cells if cell is not None}
                yield Row(table["label"], block["name"], method, filled)


# ---- what the text claims ---------------------------------------------------------------------------

Place = tuple[str, str, str, str]
"""Label of the table, block, method and column."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The text says that `better` exceeds `worse` by `points`."""

    points: str
    better: Place
    worse: Place

    @property
    def computed(self) -> float:
        return cell(self.better).value - cell(self.worse).value

    @property
    def holds(self) -> bool:
        return f"{self.computed:.2f}" == self.points


MAIN, DEPTH, BOX, SIZE, DISCOUNT = (
    "main-results",
    "depth-ablation",
    "sokoban-results",
    "group-size-ablation",
    "beta-ablation",
)

CLAIMS = (
    Claim("18.36", (MAIN, "1.5B", "CRBC", "All"), (MAIN, "1.5B", "GRPO", "All")),
    Claim("5.59", (MAIN, "1.5B", "CRBC", "All"), (MAIN, "1.5B", "HGPO", "All")),
    Claim("5.21", (BOX, "3B", "CRBC", "Succ."), (BOX, "3B", "GraphGPO", "Succ.")),
    Claim("6.25", (BOX, "3B", "CRBC", "Succ."), (BOX, "3B", "GiGPO", "Succ.")),
    Claim("3.12", (DEPTH, "closure depth", "K=inf", "Succ."), (DEPTH, "closure depth", "K=0", "Succ.")),
    Claim("2.73", (DISCOUNT, "discount", "beta=0.98", "All"), (DISCOUNT, "discount", "beta=1.00", "All")),
    Claim("13.28", (SIZE, "G=4", "CRBC", "All"), (SIZE, "G=4", "GiGPO", "All")),
    Claim("3.91", (SIZE, "G=16", "CRBC", "All"), (SIZE, "G=16", "GiGPO", "All")),
)


def cell(place: Place) -> PrintedValue:
    """The cell at a place. Raises `KeyError` where there is none."""
    table, block, method, column = place
    return row(table, block, method).cells[column]
