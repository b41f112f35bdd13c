"""The paper's tables as data: cells by hand, what the text claims, and the data beside the source."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from paper_tables import PrintedValue, rows
from paths import SHARED

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
    """The cell at a place."""
    table, block, method, column = place
    return next(row.cells[column] for row in rows() if (row.table, row.block, row.method) == (table, block, method))


def test_a_cell_is_read_as_printed():
    assert PrintedValue.read("85.27±1.40*") == PrintedValue("85.27", "1.40")
    assert PrintedValue.read("60.00") == PrintedValue("60.00") and PrintedValue.read("---") is None


def test_the_texts_differences_hold_and_a_wrong_one_would_not():
    assert all(claim.holds for claim in CLAIMS)
    assert not Claim("5.60", CLAIMS[1].better, CLAIMS[1].worse).holds


def test_the_data_are_the_papers_to_the_digit():
    source = SHARED / "paper.tex"
    if not source.exists():
        pytest.skip(f"the paper's source is not beside the project: {source}")
    printed = re.findall(r"\\begin\{tabular.*?\\end\{tabular", source.read_text(encoding="utf-8"), re.DOTALL)
    found = [line for table in printed for line in map(cells_of, table.split(r"\\")) if line]
    assert found == [[*one.cells.values()] for one in rows()]


CELL = re.compile(r"(?:\\textbf\{)?(\d+\.\d\d)\}?(?:\\sd\{([\d.]+)\})?")


def cells_of(line):
    """The figures of a line of a table; none for a head, a rule or a line of settings."""
    matches = [CELL.fullmatch(word.strip()) for word in line.split("&")]
    return [PrintedValue(match[1], match[2] or "") for match in matches if match]
