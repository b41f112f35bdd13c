"""The output of the learning study: a table for each setting, what was left out, and the figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Printed

from crbc_lab.studies.learning import tables
from crbc_lab.studies.learning.settings import SETTINGS, setting
from crbc_lab.studies.learning.study import BOUNDS, Grid, Result
from crbc_rl import credit


def show(results: Sequence[Result], grid: Grid, picture: Path, console: Console) -> None:
    found, say = tables.table(results), partial(console.print, highlight=False, soft_wrap=True)
    for name, rows in found.items():
        start = f"{100 * rows[0].result.curve[0].mean():.1f} % at the start"
        say(f"\n[bold]{name}[/]: {setting(name).description}; {start}")
        console.print(_printed(tables.HEADS, tables.lines(rows)))
        rates = [f"{rate:g}" for rate in rows[0].result.rates]
        console.print(_printed(("area by rate", *rates, "works"), tables.by_rate(rows)))
    updates, size = grid.budget.updates, grid.budget.group_size
    say(
        f"Success is exact. A training has {updates} updates with a group of {size}: {updates * size:,} rollouts "
        "of each instance, or of 16 rooms an update. The area is the mean success over it. "
        f"Intervals are joint over {len(grid.seeds)} seeds and the instances. The rate is the best of those on other "
        "instances, and it works where the area, on these, is 95 % of the best. * is separated."
    )
    methods = {*credit.METHODS, *BOUNDS} - {estimator.name for estimator in grid.estimators}
    for what, left in (("settings", {*SETTINGS} - {*grid.settings}), ("methods", methods)):
        if left:
            say(f"left out, {what}: {', '.join(sorted(left))}")
    tables.draw(found, picture)


def _printed(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Printed:
    table = Printed(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
