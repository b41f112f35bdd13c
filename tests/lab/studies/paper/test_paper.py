"""The paper's tables as data: cells by hand, what the text claims, and the data beside the source."""

from __future__ import annotations

import re

import pytest
from paths import SHARED

from crbc_lab.studies.paper.printed import CLAIMS, Claim, PrintedValue, rows


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
