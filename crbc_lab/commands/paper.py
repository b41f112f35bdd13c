"""The command of `crbc paper` with its options: check."""

from __future__ import annotations

from rich.markup import escape

from crbc_lab.commands.console import PlainConsole
from crbc_lab.commands.parse import Group, MaybePath

console = PlainConsole()


def check(out: MaybePath = None, json: bool = False) -> None:
    """Recompute what the figures of the paper's tables can come from: panels, numbers of runs, claims and bold print.

    Args:
        out: folder for the findings as paper_tables.md and paper_tables.json; default none is written.
        json: print the findings as JSON instead of tables.
    """
    from crbc_lab.studies.paper.check import findings
    from crbc_lab.studies.paper.show import show, to_json, write

    sections = findings()
    written = write(sections, out) if out is not None else ()
    if json:
        print(to_json(sections))
        return
    show(sections, console)
    for path in written:
        console.print(f"wrote {escape(str(path))}", soft_wrap=True, highlight=False)


PAPER = Group("Look into the paper's own figures: crbc paper check.", {"check": check})
