"""What the paper's text claims about its tables, as differences of two cells."""

from __future__ import annotations

from dataclasses import dataclass

from crbc_lab.studies.paper.printed import PrintedValue, row

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
