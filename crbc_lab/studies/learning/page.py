"""Puts kept learning studies into a document, between its marks, as tables or as a picture:

<!-- learning: settings FOLDER -->         a table of every method for each setting
<!-- learning: differences FOLDER ... -->  what each method has less or more than CRBC in every setting
<!-- learning: ends FOLDER ... -->         the same of success at the end, which is not tested
<!-- learning: picture FOLDER -->          the same as effect sizes
what is between them is made anew
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from crbc_lab.studies.comparison.document import UNFINISHED, Picture
from crbc_lab.studies.estimators import CRBC
from crbc_lab.studies.learning import tables
from crbc_lab.studies.learning.settings import setting
from crbc_lab.studies.learning.study import left, place, planned, read
from crbc_rl.errors import ConfigError

MARK = re.compile(r"<!-- learning: (settings|differences|ends|picture) ([\w/ -]+?) -->\n.*?<!-- end -->", re.DOTALL)
ACROSS = 5  # methods that a table has room for beside CRBC
WIDE = 2 * ACROSS  # columns that a table has room for with intervals
SEEN = "to be seen"  # the difference that would be separated in four of five such studies, a method's median


def rebuilt(text: str, results: Path, picture: Picture) -> str:
    """The document with every marked part made anew from folders of `results`. Raises `ConfigError` for folders with
    one setting, of which a part would show one."""

    def part(mark: re.Match[str]) -> str:
        form, names = mark.groups()
        found: dict[str, list[tables.Row]] = {}
        for name in names.split():
            own = kept(results / name)
            if twice := found.keys() & own.keys():
                raise ConfigError(f"<!-- learning: {form} {names} -->: several folders have {min(twice)}; name one")
            found |= own
        if not found:
            made = UNFINISHED
        elif form == "picture":
            made = picture(names, "CRBC's area minus that of each method, by setting", partial(tables.draw, found))
        else:
            made = _settings(found) if form == "settings" else _differences(found, _ends if form == "ends" else _areas)
        return f"<!-- learning: {form} {names} -->\n{made}\n<!-- end -->"

    return MARK.sub(part, text)


def kept(folder: Path) -> tables.Table:
    """The rows of all that the plan of a folder states; none where it has no plan, or is not finished by it."""
    stated = planned(folder)
    if stated is None or left(stated, folder):
        return {}
    return tables.table([read(place(one, folder)) for one in stated.parts()])


def _settings(found: tables.Table) -> str:
    parts = []
    for name, rows in found.items():
        heads = [f"area at {rate:g}" for rate in rows[0].result.rates]
        areas = {method: cells for method, *cells in tables.by_rate(rows)}
        table = [[*line, *areas[line[0]]] for line in tables.lines(rows)]
        start = f"{100 * rows[0].result.curve[0].mean():.1f} % at the start"
        told = f"**{name}**: {setting(name).description}; {start}."
        parts.append(f"{told}\n{_markdown([*tables.HEADS, *heads, 'works'], table)}")
    return "\n".join(parts)


def _areas(rows: Sequence[tables.Row]) -> dict[str, str]:
    cells = {line[0]: f"{line[4] or line[2]}{'*' * line[5].endswith('*')}" for line in tables.lines(rows)}
    least = [row.beside.smallest for row in rows if row.counts and row.beside]
    return cells | {SEEN: f"{100 * median(least):.1f}" if least else ""}


def _ends(rows: Sequence[tables.Row]) -> dict[str, str]:
    ends = {row.result.estimator: 100 * row.result.curve[-1].mean() for row in rows}
    return {name: f"{end:.1f}" if name == CRBC else f"{end - ends[CRBC]:+.1f}" for name, end in ends.items()}


def _differences(found: tables.Table, told: Callable[[Sequence[tables.Row]], dict[str, str]]) -> str:
    """Settings go down and methods across, or the other way where there are more of these. Of more than `ACROSS`
    methods, those with options are left out where others than CRBC have none. Wide tables have no intervals."""
    cells: dict[str, dict[str, str]] = {}
    for world, rows in found.items():
        for name, cell in told(rows).items():
            cells.setdefault(name, {})[world] = cell
    methods = sorted({*cells} - {CRBC, SEEN, *tables.BOUNDS})
    plain = [name for name in methods if "," not in name]
    methods = [CRBC, *(plain if plain and len(methods) > ACROSS else methods)]
    last = [SEEN] if SEEN in cells else []
    if len(methods) > len(found):
        return _markdown(["", *found], [[name, *map(cells[name].get, found)] for name in methods + last])
    lines = [[world, *(cells[name].get(world) for name in methods + last)] for world in found]
    if len(methods) > WIDE:
        lines = [[re.sub(r" \(.*\)", "", cell or "") for cell in line] for line in lines]
        return _markdown(["", *methods, *last], lines)
    return _markdown(["", CRBC, *(f"{name} minus crbc" for name in methods[1:]), *last], lines)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str | None]]) -> str:
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n" + "\n".join(f"| {' | '.join(cell or '' for cell in line)} |" for line in lines) + "\n"
