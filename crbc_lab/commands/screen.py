"""What `crbc play` prints: boards, pages and lists of actions, for the width and height of the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile

from rich.text import Text

from crbc_envs.core import Rows
from crbc_envs.printable import printable

Legend = Mapping[str, tuple[str, str]]
"""Per symbol of a board, its meaning and its colour (`AnchorEnv.legend`)."""

GAP = "  "
_BUTTON = re.compile(r"\[[^\[\]]*\]\*?")
_WORD = re.compile(r"\[.*|[^\s\[]+")
_NUMBERED = re.compile(r"(.+) (0|[1-9]\d*)")
_NO_BREAK = "\xa0"


def picture(text: str, legend: Legend) -> Text:
    """A board with each symbol in its colour. Any other text is `printable`."""
    text = printable(text)
    drawn = Text(text)
    if legend and set(text) <= {*legend, " ", "\n"}:
        for place, symbol in enumerate(text):
            if symbol in legend:
                drawn.stylize(legend[symbol][1], place, place + 1)
    return drawn


def explained(legend: Legend) -> Text:
    """The legend in one line."""
    return Text(", ").join(Text.assemble((symbol, colour), f" {what}") for symbol, (what, colour) in legend.items())


def page(rows: Rows, actions: Sequence[str], width: int, height: int | None = None) -> Text:
    """The rows laid out for `width` columns, at least 40, with what can be clicked in colour.

    If they need more than `height` lines, each row of three cells or more is cut to one line.
    """
    width = max(width, 40)  # in less there is no table
    rows = [tuple(map(printable, row)) for row in rows]
    lines = list(_lines(rows, width, cut=False))
    if height is not None and len(lines) > height:
        lines = list(_lines(rows, width, cut=True))
    text = Text("\n".join(lines))
    buttons = {bracket(printable(action)) for action in actions}
    for button in _BUTTON.finditer(text.plain):
        if button[0].rstrip("*") in buttons:
            text.stylize("bold green" if button[0].endswith("*") else "cyan", *button.span())
    return text


def bracket(action: str) -> str:
    """ "[x]" of "click[x]"; an action without brackets is returned as it is."""
    return action[action.index("[") :] if action.endswith("]") and "[" in action else action


def grouped(actions: Sequence[str]) -> Rows:
    """Actions as a table: the words that several begin with, and how each goes on. The others are in one row."""
    groups: dict[str, list[list[str]]] = {}
    for action in actions:
        words = _WORD.findall(action)
        groups.setdefault(words[0] if words else "", []).append(words)
    rows, others = [], []
    for group in groups.values():
        columns = zip(*(words[:-1] for words in group), strict=False)
        shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        if len(group) > 1 and shared:
            rows.append((" ".join(group[0][:shared]), _ranges([" ".join(words[shared:]) for words in group])))
        else:
            others += [" ".join(words) for words in group]
    return [*rows, *([("", ", ".join(others))] if others else [])]


def _ranges(names: Sequence[str]) -> str:
    """Names in one line; "drawer 1", "drawer 2", "drawer 3" as "drawer 1-3"."""
    split = [_NUMBERED.fullmatch(name) for name in names]
    numbers: dict[str, list[int]] = {}
    for numbered in split:
        if numbered:
            numbers.setdefault(numbered[1], []).append(int(numbered[2]))
    shown: dict[str, None] = {}
    for name, numbered in zip(names, split, strict=True):
        shown |= dict.fromkeys(_runs(numbered[1], numbers[numbered[1]]) if numbered else [name])
    return ", ".join(shown)


def _runs(name: str, numbers: Sequence[int]) -> Iterator[str]:
    for _, pairs in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in pairs]
        yield f"{name} {run[0]}" if len(run) == 1 else f"{name} {run[0]}-{run[-1]}"


def _lines(rows: Rows, width: int, cut: bool) -> Iterator[str]:
    for cells, block in groupby(rows, key=len):
        table = list(block)
        if cells == 1:
            for (text,) in table:
                yield from _wrapped(text, width)
            continue
        widths = [min(max(len(row[i]) for row in table), width // 3) for i in range(cells - 1)]
        for row in table:
            yield from _table_row(row, widths, width, cut and cells > 2)


def _table_row(row: tuple[str, ...], widths: Sequence[int], width: int, cut: bool) -> Iterator[str]:
    """The last cell wraps beside the others. A cell that is wider than its column pushes it to the next line."""
    indent = sum(widths) + len(GAP) * len(widths)
    left = "".join(cell.ljust(size) + GAP for cell, size in zip(row, widths, strict=False))
    if len(left) > indent:
        yield left.rstrip()
        left = " " * indent
    lines = _wrapped(row[-1], max(width - indent, 10))
    if cut and len(lines) > 1:
        lines = [lines[0][: max(width - indent, 10) - 3] + "..."]
    for line in lines:
        yield (left + line).rstrip()
        left = " " * indent


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns that do not break inside brackets if they can be avoided."""
    whole = _BUTTON.sub(lambda button: button[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(whole, width, break_on_hyphens=False, drop_whitespace=True)
    return [line.replace(_NO_BREAK, " ") for line in lines] or [""]
