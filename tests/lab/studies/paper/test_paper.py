"""The check of the paper's tables: hand cases, the findings, the command, the page, and the data beside the source."""

from __future__ import annotations

import re

import pytest
from paths import ROOT, SHARED

from crbc_lab import cli
from crbc_lab.studies.paper import check, feasibility
from crbc_lab.studies.paper.printed import CLAIMS, KINDS, Claim, PrintedValue, row, rows

A, B = (30, 19, 26, 12, 21, 20), (31, 19, 25, 12, 21, 20)


@pytest.fixture(scope="module")
def sections():
    return {section.title: section for section in check.findings()}


# ---- cells by hand -------------------------------------------------------------------------------


def test_a_cell_is_read_as_printed():
    assert PrintedValue.read("85.27±1.40*") == PrintedValue("85.27", "1.40")
    assert PrintedValue.read("60.00") == PrintedValue("60.00") and PrintedValue.read("---") is None
    assert PrintedValue("85.30", "1.40").rounded and not PrintedValue("85.30", "1.41").rounded


@pytest.mark.parametrize(
    ("cell", "sizes", "ddof", "found"),
    [
        (PrintedValue("77.34"), (128,), 0, ((99,),)),
        (PrintedValue("77.73"), (128,), 0, ()),
        (PrintedValue("77.73", "1.95"), (128, 128), 0, ((97, 102), (102, 97))),
        (PrintedValue("77.73", "1.95"), (128, 128), 1, ()),
        (PrintedValue("85.27", "1.40"), (30, 31), 0, ((26, 26),)),
        (PrintedValue("85.27", "1.40"), (30, 30), 0, ()),
        (PrintedValue("58.33", "0.00"), (12, 12), 0, ((7, 7),)),
        (PrintedValue("58.33", "0.00"), (12,), 0, ((7,),)),
        (PrintedValue("78.13", "0.00"), (128,), 0, ((100,),)),  # 78.125, rounded up
        (PrintedValue("93.75", "3.12"), (128, 128), 0, ((116, 124), (124, 116))),  # 3.125, rounded down
    ],
)
def test_which_counts_print_as_a_cell(cell, sizes, ddof, found):
    assert feasibility.solutions(cell, sizes, ddof) == found


def test_every_solution_prints_as_its_cell_and_none_is_missed():
    cell, sizes = PrintedValue("92.98", "6.56"), (19, 19, 19)
    rates = {(a, b, c): [100 * k / 19 for k in (a, b, c)] for a in range(20) for b in range(20) for c in range(20)}
    prints = {
        counts
        for counts, x in rates.items()
        if f"{sum(x) / 3:.2f}" == "92.98" and f"{(sum((v - sum(x) / 3) ** 2 for v in x) / 3) ** 0.5:.2f}" == "6.56"
    }
    assert prints and set(feasibility.solutions(cell, sizes)) == prints


def test_all_and_the_kinds_must_come_from_the_same_runs():
    fits = row("main-results", "1.5B", "CRBC")
    assert feasibility.fits_together(fits, (A, A, B), 0) and not feasibility.fits_together(fits, (A, A, A), 0)
    assert not feasibility.fits_together(fits, (A, A, B), 1)
    odd = row("alfworld-credit-ablation", "credit", "w=1,1")
    assert all(feasibility.solutions(odd.cells[k], s) for k, s in zip(KINDS, zip(A, A, B, strict=True), strict=True))
    assert not feasibility.fits_together(odd, (A, A, B), 0)


# ---- findings ------------------------------------------------------------------------------------


def test_the_panels_are_those_that_the_single_runs_and_the_most_rows_fit():
    assert check.first_panel() == A and sum(A) == 128
    own = [one for one in rows() if one.has_kinds and not one.copied]
    (best, most), (_, next_best) = feasibility.second_panel(own, A).most_common(2)
    assert best == B and (most, next_best) == (11, 7)


def test_which_rows_are_three_runs_and_which_two(sections):
    found = {line[:2]: line[3] for line in sections["Rows with kinds"].rows}
    assert found["main-results", "1.5B, CRBC"] == "3 (A A B)"
    assert found["main-results", "1.5B, GRPO"] == "2 (A B)"
    assert found["main-results", "7B, CRBC"] == "2 (A A), 2 (A B)"
    assert [name for (_, name), runs in found.items() if runs == "none"] == [
        "7B, GRPO",
        "credit, w=1,0",
        "credit, w=1,1",
    ]


def test_one_row_was_played_on_panels_of_its_own():
    panels = feasibility.own_panels(row("main-results", "7B", "GRPO"))
    assert len(panels) == 1 and all(sum(panel) == 128 for panel in panels[0])
    assert {panel[3:] for panel in panels[0]} == {(14, 18, 21)}


def test_sokobans_grpo_fits_no_number_of_runs():
    assert not feasibility.overall_readings(row("sokoban-results", "3B", "GRPO").cells["Succ."])
    assert feasibility.overall_readings(row("sokoban-results", "3B", "CRBC").cells["Succ."]) == [(3, 0)]


def test_copied_rows_fit_nothing_and_are_known_by_their_digits(sections):
    lines = sections["Copied rows"].rows
    assert {line[0].split(", ")[1] for line in lines} == {
        *("GPT-4o", "Gemini-2.5-Pro", "Qwen2.5", "ReAct", "Reflexion", "PPO", "RLOO", "HGPO")
    }
    assert all(line[-1] == "0" for line in lines)


def test_the_texts_differences_hold_and_a_wrong_one_would_not():
    assert all(claim.holds for claim in CLAIMS)
    assert not Claim("5.60", CLAIMS[1].better, CLAIMS[1].worse).holds


# ---- the command and the page --------------------------------------------------------------------


def test_the_command_prints_tables_and_writes_the_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    cli.main(["paper", "check", "--out", str(tmp_path / "found")])
    shown = capsys.readouterr().out
    assert "3 (A A B)" in shown and "18.36" in shown and "paper_tables.md" in shown
    assert (tmp_path / "found/paper_tables.md").read_text(encoding="utf-8") == page()


def test_the_page_is_the_computation(sections):
    assert page() == check.markdown(list(sections.values()))


def page():
    return (ROOT / "docs/paper_tables.md").read_text(encoding="utf-8")


# ---- the data ------------------------------------------------------------------------------------


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
