"""The findings about the paper's tables, each computed: `crbc paper check`, and docs/paper_tables.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markdown import Markdown
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
    "`crbc paper check` recomputes what the printed figures can come from; with `--out docs` it writes this page. It "
    "reads `crbc_lab/studies/paper/tables.yaml`, the tables as typed from the paper's source. Panels, numbers of runs "
    "and differences are computed. What is known from elsewhere says so. A figure that fits may still be wrong, and "
    "one that does not may be a misprint."
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
        _claims(),
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
    console.print(Markdown(markdown(sections).partition("\n\n")[2]))
