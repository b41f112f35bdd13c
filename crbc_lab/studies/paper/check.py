"""The findings about the paper's tables, each computed: `crbc paper check`, and docs/paper_tables.md.

python -m crbc_lab.studies.paper.check > docs/paper_tables.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from textwrap import fill

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from scipy.optimize import linprog

from crbc_lab.studies.paper.feasibility import (
    Fit,
    Panel,
    neighbours,
    overall_readings,
    own_panels,
    row_fits,
    second_panel,
    smallest_panel,
    weighted,
)
from crbc_lab.studies.paper.printed import CLAIMS, KINDS, TRAJECTORIES, Row, row, rows

Floats = NDArray[np.float64]

GIGPO_ORDER = ("Pick", "Look", "Clean", "Heat", "Cool", "Pick2")
"""The heads of the table in the GiGPO paper, arXiv 2505.10978, and in those that reprint it."""


@dataclass(frozen=True, slots=True)
class Section:
    """One finding: what was computed, and a table of words."""

    title: str
    about: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


ABOUT = (
    "`crbc paper check` recomputes what the printed figures can come from, and "
    "`python -m crbc_lab.studies.paper.check` writes this page. Both read `crbc_lab/studies/paper/tables.yaml`, the "
    "tables as typed from the paper's source. "
    "Panels, numbers of runs and differences are computed. What is known from elsewhere says so. A figure that fits "
    "may still be wrong, and one that does not may be a misprint."
)


def findings() -> list[Section]:
    """Every finding, in the order of the document."""
    own = [one for one in rows() if one.has_kinds and not one.copied]
    first = first_panel()
    ranking = second_panel(own, first).most_common(2)
    panels = first, ranking[0][0]
    fits = {(one.table, one.name): row_fits(one, panels) for one in own}
    return [
        _panels(first, ranking, len([one for one in own if not row_fits(one, [first])])),
        _kinds(own, fits, panels),
        _overall(),
        _own_panel(own, fits),
        _copied(panels),
        _orders(),
        _claims(),
        _bold(),
        _repeats(),
    ]


def first_panel() -> Panel:
    """The smallest sizes that the single runs of the table of group sizes fit. Raises `ValueError` if they are no panel
    of 128."""
    sizes = tuple(min(fitting) for fitting in smallest_panel(_singles()).values())
    if sum(sizes) != TRAJECTORIES:
        raise ValueError(f"the single runs fit {sizes}, which are not {TRAJECTORIES} tasks")
    return sizes


def _singles() -> list[Row]:
    return [one for one in rows() if one.has_kinds and not one.cells["All"].sd and not one.copied]


def _panels(first: Panel, ranking: Sequence[tuple[Panel, int]], left: int) -> Section:
    (second, explained), (_, runner_up) = ranking
    sizes = smallest_panel(_singles())
    return Section(
        "The panels",
        "The eight rows of the table of group sizes are single runs. Panel A has, of each kind, the smallest number of "
        f"tasks that all eight figures fit. They add up to {sum(first)}, the number of validation trajectories, so no "
        f"larger multiple is possible. Of the other rows with kinds that were run for the paper, {left} do not fit "
        f"runs on panel A alone. There are {len(list(neighbours(first)))} panels in which one task is of another kind. "
        f"One of them, panel B, explains {explained} of those rows together with panel A; the next best explains "
        f"{runner_up}. So seeds played different panels, as the appendix says: the environment's seed selects the "
        "trajectories.",
        ("kind", "sizes up to 60 that fit", "panel A", "panel B"),
        tuple(
            (kind, ", ".join(map(str, sizes[kind])), str(a), str(b))
            for kind, a, b in zip(KINDS, first, second, strict=True)
        ),
    )


def _kinds(own: Sequence[Row], fits: dict[tuple[str, str], list[Fit]], panels: tuple[Panel, Panel]) -> Section:
    few = [one.name for one in own if (fitting := fits[one.table, one.name]) and {fit.runs for fit in fitting} == {2}]
    many = sum(bool(fitting) and {fit.runs for fit in fitting} == {3} for fitting in fits.values())
    none = [one.name for one in own if not fits[one.table, one.name]]
    ddofs = {fit.ddof for one in own if one.cells["All"].sd for fit in fits[one.table, one.name]}
    deviations = "population's (n in the denominator)" if ddofs == {0} else f"of ddof {sorted(ddofs)}"
    return Section(
        "Rows with kinds",
        "A row fits if integers exist, one per run and kind, that print as all seven means and deviations: the six "
        f"kinds, and All over the same runs. One, two and three runs are tried. {many} rows fit three runs only. "
        f"{len(few)} rows fit two runs only: {'; '.join(few)}. The caption of the discount's table says three seeds, "
        f"that of the main one three for most. {len(none)} rows fit no runs on the two panels: {'; '.join(none)}. "
        f"Wherever a row fits, its deviations are the {deviations}. The last columns weigh the kinds by panel A; rows "
        "on other panels differ a little.",
        ("table", "row", "All", "runs that fit", "kinds by panel A", "difference"),
        tuple(
            (
                one.table,
                one.name,
                str(one.cells["All"]),
                _named(fits[one.table, one.name], panels),
                f"{(mean := weighted(one, dict(zip(KINDS, panels[0], strict=True)))):.2f}",
                f"{mean - one.cells['All'].value:+.2f}",
            )
            for one in own
        ),
    )


def _named(fits: Sequence[Fit], panels: tuple[Panel, Panel]) -> str:
    """ "2 (A A), 2 (A B)"; "none"."""
    letters = dict(zip(panels, "AB", strict=True))
    return ", ".join(f"{fit.runs} ({' '.join(letters[panel] for panel in fit.panels)})" for fit in fits) or "none"


def _overall() -> Section:
    lines = []
    for one in rows():
        for column in ("All", "Succ."):
            if (cell := one.cells.get(column)) and not one.copied:
                readings = overall_readings(cell)
                by_ddof = {ddof: ", ".join(str(runs) for runs, d in readings if d == ddof) or "none" for ddof in (0, 1)}
                lines.append((one.table, one.name, column, str(cell), by_ddof[0], by_ddof[1]))
    return Section(
        "Success over all tasks",
        f"Numbers of runs of {TRAJECTORIES} trajectories that fit a success and its deviation, for WebShop (Succ. of "
        "the main table) and Sokoban as well. Where two runs fit with the population's deviation, three with a "
        "sample's may fit too: two runs at m - d and m + d have the deviation d, and so have three at m - d, m and m + "
        "d. The rows with kinds above speak for the population's throughout. Under it the depths 1 to 3 and Sokoban's "
        "GiGPO are two runs. Sokoban's GRPO fits no such number of runs; a dagger beside its name is not explained.",
        ("table", "row", "column", "printed", "runs, population's", "runs, sample's"),
        tuple(lines),
    )


def _own_panel(own: Sequence[Row], fits: dict[tuple[str, str], list[Fit]]) -> Section:
    lines = []
    for one in own:
        if fits[one.table, one.name]:
            continue
        fitting = own_panels(one)
        shown = "; ".join(" / ".join(map(str, panel)) for panel in fitting[0]) if fitting else "none"
        lines.append((one.table, one.name, str(one.cells["All"]), str(len(fitting)), shown))
    return Section(
        "Rows that fit neither panel",
        "For these rows any panels of 128 tasks are tried, one for each of three runs, whose sizes of a kind differ by "
        "two at most between runs. The order of kinds is Pick / Clean / Cool / Look / Heat / Pick2. A row that fits "
        "such panels was played on other tasks than all the rest. A row that fits none contradicts itself: its All is "
        "not the mean of its kinds. The differences above are about 0.26 points, one of 384 trajectories.",
        ("table", "row", "All", "sets of panels that fit", "the first of them"),
        tuple(lines),
    )


def _copied(panels: tuple[Panel, Panel]) -> Section:
    copied = [one for one in rows() if one.has_kinds and one.copied]
    printed, other = (_in_order(panels[0], order) for order in (KINDS, GIGPO_ORDER))
    figures = np.array([[one.cells[kind].value for kind in KINDS] for one in copied])
    overall = np.array([one.cells["All"].value for one in copied])
    least = _least_error(figures, overall)
    lines = []
    for one, values, total in zip(copied, figures, overall, strict=True):
        ways = [float(values @ sizes) / TRAJECTORIES - total for sizes in (printed, other)]
        fits = len(row_fits(one, panels))
        lines.append((one.name, str(one.cells["All"]), *(f"{way:+.2f}" for way in ways), str(fits)))
    return Section(
        "Copied rows",
        "Every figure of these rows ends in 0: they have one decimal, and no reading of them as runs on panels A and B "
        "fits. From outside the tables: the same numbers in the same order stand in the GiGPO paper (arXiv "
        "2505.10978). Papers that reprint it, such as SkillRL and ProxMO, were seen with both closed models, Qwen2.5 "
        "and ReAct at both scales, and Reflexion and RLOO at 7B. There the heads are Pick, Look, Clean, Heat, Cool, "
        "Pick2; here they are Pick, Clean, Cool, Look, Heat, Pick2. So four of six heads are wrong in these rows. The "
        "tables alone do not decide it: no proportions of the six columns, whatever their heads, bring all "
        f"{len(copied)} rows within {least:.2f} points of All. So the rows do not come from one panel either. The "
        "columns give the mean of the kinds by panel A minus All under either order of heads, and the number of "
        "readings that fit.",
        ("row", "All", "heads as printed", "heads of GiGPO", "readings that fit"),
        tuple(lines),
    )


def _in_order(panel: Panel, order: Sequence[str]) -> list[int]:
    """The sizes of the panel's kinds in another order of kinds."""
    size = dict(zip(KINDS, panel, strict=True))
    return [size[kind] for kind in order]


def _least_error(figures: Floats, overall: Floats) -> float:
    """The least largest error of a weighted mean of columns, over all non-negative weights that add up to 1."""
    count, kinds = figures.shape
    slack = np.ones((count, 1))
    solution = linprog(
        np.append(np.zeros(kinds), 1.0),
        A_ub=np.block([[figures, -slack], [-figures, -slack]]),
        b_ub=np.append(overall, -overall),
        A_eq=np.append(np.ones(kinds), 0.0)[None],
        b_eq=[1.0],
    )
    return float(solution.fun)


def _orders() -> Section:
    """Copied rows of trained policies beside the mean of the trained rows of this paper, kind by kind."""
    lines = []
    for block, group in groupby((one for one in rows() if one.table == "main-results"), lambda one: one.block):
        trained = [one for one in group if one.cells["All"].sd]
        here = [one for one in trained if not one.copied]
        for one in trained:
            if one.copied:
                means = {kind: float(np.mean([other.cells[kind].value for other in here])) for kind in KINDS}
                values = [one.cells[kind].value for kind in KINDS]
                correlations = (np.corrcoef(values, [means[k] for k in order])[0, 1] for order in (KINDS, GIGPO_ORDER))
                lines.append((f"{block}, {one.method}", *(f"{value:+.2f}" for value in correlations)))
    return Section(
        "The order of heads, by difficulty",
        "The correlation over the six kinds of a copied row with the mean of the rows that were trained here, at the "
        "same scale. A kind that is hard for one method tends to be hard for another, so the right heads should "
        "correlate more. It is a hint: six numbers a row. HGPO's source was not seen.",
        ("row", "heads as printed", "heads of GiGPO"),
        tuple(lines),
    )


def _claims() -> Section:
    differences = [
        (
            one.points,
            f"{one.better[1]}, {one.better[2]} - {one.worse[2]} ({one.better[0]})",
            f"{one.computed:.2f}",
            "yes" if one.holds else "no",
        )
        for one in CLAIMS
    ]
    block = [one for one in rows() if (one.table, one.block) == ("main-results", "1.5B")]
    ours, grpo = row("main-results", "1.5B", "CRBC"), row("main-results", "1.5B", "GRPO")
    first = sum(all(ours.cells[kind].value >= one.cells[kind].value for one in block) for kind in KINDS)
    above = sum(ours.cells[kind].value > grpo.cells[kind].value for kind in KINDS)
    return Section(
        "Claims of the text",
        "Differences that the text states, from the cells of its tables, and two claims about kinds. 5.59 is the lead "
        "over HGPO, whose row was copied and played other tasks.",
        ("claimed", "cells", "computed", "holds"),
        (
            *differences,
            ("first on 4 of 6 kinds", "1.5B, CRBC (main-results)", str(first), "yes" if first == 4 else "no"),
            ("above GRPO on 6 kinds", "1.5B, CRBC (main-results)", str(above), "yes" if above == 6 else "no"),
        ),
    )


def _bold() -> Section:
    lines = []
    for (table, block), group in groupby(rows(), lambda one: (one.table, one.block)):
        members = list(group)
        if any(cell.bold for one in members for cell in one.cells.values()):
            wrong = list(_wrongly_bold(members))
            marks = sum(cell.bold for one in members for cell in one.cells.values())
            lines.append((table, block, str(marks), "; ".join(wrong) or "none"))
    return Section(
        "Bold print",
        "Whether exactly the best cells of each column of a block are bold. Where the copied rows of the 1.5B block, "
        "HGPO's among them, are read under GiGPO's heads, the best of a column is another one: "
        f"{'; '.join(_changed())}.",
        ("table", "block", "bold cells", "not the best, or best and not bold"),
        tuple(lines),
    )


def _wrongly_bold(block: Sequence[Row]) -> Iterator[str]:
    for column in block[0].cells:
        cells = {one.method: one.cells[column] for one in block if column in one.cells}
        best = max(cell.value for cell in cells.values())
        yield from (
            f"{method}, {column}: {cell}" for method, cell in cells.items() if cell.bold != (cell.value == best)
        )


def _changed() -> Iterator[str]:
    """The kinds of the 1.5B block whose best method is another one under the other heads."""
    block = [one for one in rows() if (one.table, one.block) == ("main-results", "1.5B")]
    for kind in KINDS:
        printed = max(block, key=lambda one: one.cells[kind].value)
        other = max(block, key=lambda one: one.cells[_head(one, kind)].value)
        if printed is not other:
            cell = other.cells[_head(other, kind)]
            yield f"{kind} {other.method} {cell.mean}, not {printed.method} {printed.cells[kind].mean}"


def _head(one: Row, kind: str) -> str:
    """The head under which a row's figure for `kind` stands, if copied rows are in GiGPO's order."""
    return KINDS[GIGPO_ORDER.index(kind)] if one.copied else kind


REPEATS = (
    ("default CRBC", ("depth-ablation", "closure depth", "K=inf"), ("main-results", "1.5B", "CRBC")),
    ("default CRBC", ("alfworld-credit-ablation", "credit", "w=1,5"), ("main-results", "1.5B", "CRBC")),
    ("default CRBC", ("beta-ablation", "discount", "beta=0.98"), ("main-results", "1.5B", "CRBC")),
    ("GRPO: no step credit", ("alfworld-credit-ablation", "credit", "w=1,0"), ("main-results", "1.5B", "GRPO")),
)
"""Rows that are the same method with the same settings."""


def _repeats() -> Section:
    lines = []
    for name, place, home in REPEATS:
        here, there = row(*place), row(*home)
        lines.append((name, place[0], str(here.cells[here.overall]), str(there.cells[there.overall])))
    return Section(
        "One method in two tables",
        "CRBC's default row is one set of runs, printed four times. With step weight 0 CRBC is GRPO by its definition; "
        "the two rows are different runs of one method. What lies between them is chance, or a difference in settings "
        "that the paper does not state.",
        ("method", "table", "All there", "All in main-results"),
        tuple(lines),
    )


def markdown(sections: Sequence[Section]) -> str:
    """The document."""
    parts = [f"# The paper's tables, computed again\n\n{_wrapped(ABOUT)}\n"]
    for section in sections:
        lines = [section.heads, ("---",) * len(section.heads), *section.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"## {section.title}\n\n{_wrapped(section.about)}\n\n{table}\n")
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    return fill(text, 120, break_on_hyphens=False, break_long_words=False)


def print_sections(sections: Sequence[Section], console: Console) -> None:
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


if __name__ == "__main__":
    print(markdown(findings()), end="")
