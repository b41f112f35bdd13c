"""The picture of an anchor in the graph: a small Sokoban board, or the first words of its label."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

TILES = {"#": "wall", "_": "", ".": "target", "$": "box", "*": "target placed", "@": "player", "+": "target player"}
SIDE = 50.0
"""The longer side of a drawn board."""
TEXT_SIZE = (118.0, 46.0)
TEXT_COLUMNS, TEXT_LINES = 20, 3

Board = list[list[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """`shapes` are (CSS class, path) relative to the upper left corner; `lines` are text instead of shapes."""

    width: float
    height: float
    shapes: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()


def parse_board(label: str) -> Board | None:
    """The cells of a board in XSB notation, or None where `label` is anything else."""
    rows = [line.split() for line in label.splitlines()]
    rectangular = len(rows) > 1 and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)
    return rows if rectangular and all(cell in TILES for row in rows for cell in row) else None


def pictures(labels: Sequence[str]) -> list[Picture]:
    """One picture per label, all of the same size: boards if every label is a board, else text."""
    boards = [parse_board(label) for label in labels]
    known = [board for board in boards if board]
    if len(known) < len(labels) or len({(len(b), len(b[0])) for b in known}) != 1:
        return [_words(label) for label in labels]
    top, bottom, left, right = _window(known)
    return [_board([row[left:right] for row in board[top:bottom]]) for board in known]


def _window(boards: Sequence[Board]) -> tuple[int, int, int, int]:
    """The window (top, bottom, left, right) without the outer rows and columns that are wall in all boards."""
    inside = [(r, c) for board in boards for r, row in enumerate(board) for c, cell in enumerate(row) if cell != "#"]
    if not inside:
        return 0, len(boards[0]), 0, len(boards[0][0])
    rows, columns = zip(*inside, strict=True)
    return min(rows), max(rows) + 1, min(columns), max(columns) + 1


def _board(board: Board) -> Picture:
    cell = SIDE / max(len(board), len(board[0]))
    paths: dict[str, str] = {}
    for r, row in enumerate(board):
        for c, symbol in enumerate(row):
            for kind in TILES[symbol].split():
                paths[kind] = paths.get(kind, "") + _tile(kind, c * cell, r * cell, cell)
    ordered = tuple((kind, paths[kind]) for kind in ("wall", "target", "box", "placed", "player") if kind in paths)
    return Picture(len(board[0]) * cell, len(board) * cell, ordered)


def _tile(kind: str, x: float, y: float, cell: float) -> str:
    if kind in ("target", "player"):
        radius = cell * (0.3 if kind == "player" else 0.4)
        arc = f"a{radius:.1f} {radius:.1f} 0 1 0"
        return f"M{x + cell / 2 - radius:.1f} {y + cell / 2:.1f}{arc} {2 * radius:.1f} 0{arc} {-2 * radius:.1f} 0Z"
    inset = 0.0 if kind == "wall" else cell * (0.2 if kind == "placed" else 0.14)
    side = cell - 2 * inset
    return f"M{x + inset:.1f} {y + inset:.1f}h{side:.1f}v{side:.1f}h{-side:.1f}Z"


def _words(label: str) -> Picture:
    lines = textwrap.wrap(label, TEXT_COLUMNS, max_lines=TEXT_LINES, placeholder=" …")
    return Picture(*TEXT_SIZE, lines=tuple(lines))
