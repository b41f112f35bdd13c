"""Prompts of FrozenLake."""

from __future__ import annotations

from collections.abc import Mapping

from crbc_envs.prompts import Template, View

_RULES = """\
You walk on a frozen lake. Reach the goal. If you step into a hole, you have lost.

# Symbols on the map
F ice, H hole, G goal, @ you
The border stops you: you stay where you are.
"""

_TURN = """
First reason step by step, within <think> </think> tags. Then give one action for this step, within <action> </action> \
tags."""


def frozenlake_text(view: View) -> str:
    """The rules, the map and the admissible actions. It has no history: the map is the whole situation."""
    actions = ", ".join(repr(action) for action in view.admissible)
    current = f"\n{view.task}\nYou are at step {view.step + 1}. The map is:\n{view.observation}\n"
    return _RULES + current + f"Your admissible actions are [{actions}].\n" + _TURN


def frozenlake_compact(view: View) -> str:
    """For a tiny model: where the goal lies, and what is next to the agent. About 30 tokens."""
    rows = view.observation.split("\n")
    row, column = _place(rows, "@+X")
    to_row, to_column = _place(rows, "G+")
    goal = [f"{n} {way}" for n, way in ((row - to_row, "up"), (to_row - row, "down")) if n > 0]
    goal += [f"{n} {way}" for n, way in ((column - to_column, "left"), (to_column - column, "right")) if n > 0]
    steps = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
    near = {way: _letter(rows, row + r, column + c) for way, (r, c) in steps.items()}
    holes = [way for way, letter in near.items() if letter == "H"] or ["none"]
    edges = [way for way, letter in near.items() if not letter] or ["none"]
    return f"Goal: {', '.join(goal)}. Hole: {', '.join(holes)}. Edge: {', '.join(edges)}. Your move?"


def _place(rows: list[str], letters: str) -> tuple[int, int]:
    """Where the first of `letters` stands; the last row and column where the text was shortened."""
    places = ((i, j) for i, row in enumerate(rows) for j, letter in enumerate(row) if letter in letters)
    return next(places, (len(rows) - 1, len(rows[-1]) - 1))


def _letter(rows: list[str], row: int, column: int) -> str:
    return rows[row][column] if 0 <= row < len(rows) and 0 <= column < len(rows[row]) else ""


TEMPLATES: Mapping[str, Template] = {"text": frozenlake_text, "compact": frozenlake_compact}
"""By style."""
