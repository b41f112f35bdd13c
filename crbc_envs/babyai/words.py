"""What the agent sees in words, and the whole state: the payloads of BabyAI's anchors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FACING = ("east", "south", "west", "north")
"""MiniGrid's directions, in its order."""
DOORS = ("open", "closed", "locked")
SILENT = ("unseen", "empty", "wall", "floor")
"""Cells that are no things. Walls are told by themselves."""


def view(env: Any, observation: Mapping[str, Any]) -> str:
    """What lies in the agent's partial view, from its own place: things by distance, the walls, and what it carries."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    image: NDArray[np.uint8] = observation["image"]
    width, depth, _ = image.shape
    middle, near = width // 2, depth - 1  # the agent's own cell; it holds what is carried
    things: list[tuple[int, int, int, str]] = []
    for column, row in np.argwhere(image[:, :, 0] > 1).tolist():
        kind, colour, state = image[column, row].tolist()
        name = IDX_TO_OBJECT[kind]
        if name not in SILENT and (column, row) != (middle, near):
            words = (
                f"{DOORS[state]} {IDX_TO_COLOR[colour]} door" if name == "door" else f"{IDX_TO_COLOR[colour]} {name}"
            )
            ahead, aside = near - row, column - middle
            things.append((ahead + abs(aside), ahead, aside, f"{words} {_place(ahead, aside)}"))
    is_wall = image[:, :, 0] == _number("wall")
    walls = [
        f"{1 + int(np.flatnonzero(line)[0])} {way}"
        for way, line in (
            ("ahead", is_wall[middle, near - 1 :: -1]),
            ("left", is_wall[middle - 1 :: -1, near]),
            ("right", is_wall[middle + 1 :, near]),
        )
        if line.any()
    ]
    held = env.unwrapped.carrying
    return (
        f"You see {', '.join(words for *_, words in sorted(things)) or 'nothing'}. "
        f"Walls: {', '.join(walls) or 'none'}. "
        f"You face {FACING[observation['direction']]} and carry {f'{held.color} {held.type}' if held else 'nothing'}."
    )


def _number(name: str) -> int:
    from minigrid.core.constants import OBJECT_TO_IDX

    return int(OBJECT_TO_IDX[name])


def _place(ahead: int, aside: int) -> str:
    """A place in the view, such as "2 ahead 1 left"."""
    ways = [f"{ahead} ahead"] if ahead else []
    ways += [f"{abs(aside)} {'right' if aside > 0 else 'left'}"] if aside else []
    return " ".join(ways)


def _thing(thing: Any) -> str:
    """A thing with all that may change about it: a door's state, and what is in a box."""
    door = f"{DOORS[thing.encode()[2]]} " if thing.type == "door" else ""
    return f"{door}{thing.color} {thing.type}" + (f" with a {_thing(thing.contains)}" if thing.contains else "")


def situation(env: Any, observation: Mapping[str, Any]) -> str:
    """The view, and where the agent stands."""
    x, y = map(int, env.unwrapped.agent_pos)
    return f"{view(env, observation)} You stand at {x}, {y}."


def state(env: Any, observation: Mapping[str, Any]) -> str:
    """The whole state: walls, things, the agent, and what MiniGrid remembers of the mission."""
    inner = env.unwrapped
    x, y = map(int, inner.agent_pos)
    held = _thing(inner.carrying) if inner.carrying else "nothing"
    return "\n".join(
        [
            *_walls(inner.grid),
            *_things(inner.grid),
            f"You stand at {x}, {y}, face {FACING[inner.agent_dir]} and carry {held}.",
            f"{inner.mission}: {_progress(inner.instrs, inner)}",
        ]
    )


def layout(env: Any, observation: Mapping[str, Any]) -> str:
    """The walls, the things and the mission at the start, without the agent."""
    inner = env.unwrapped
    return "\n".join([*_walls(inner.grid), *_things(inner.grid), inner.mission])


def _walls(grid: Any) -> list[str]:
    is_wall = grid.encode()[:, :, 0] == _number("wall")
    return ["".join("#" if wall else "." for wall in row) for row in is_wall.T]


def _things(grid: Any) -> list[str]:
    cells = ((x, y, grid.get(x, y)) for y in range(grid.height) for x in range(grid.width))
    return [f"{_thing(cell)} at {x}, {y}" for x, y, cell in cells if cell and cell.type not in SILENT]


def _progress(instruction: Any, inner: Any) -> str:
    """What an instruction remembers: which parts are done, and where it takes the things that it is about to be.

    MiniGrid compares things by identity. Equal things are told apart by their places.
    """
    if hasattr(instruction, "instr_a"):
        parts = (("a", instruction.instr_a), ("b", instruction.instr_b))
        done = ((getattr(instruction, f"{name}_done") == "success", part) for name, part in parts)
        return ", ".join(f"{whether} ({_progress(part, inner)})" for whether, part in done)
    names = [name for name in ("desc", "desc_move", "desc_fixed") if hasattr(instruction, name)]
    places = "; ".join(_tracked(getattr(instruction, name), inner, name == "desc") for name in names)
    before = getattr(instruction, "preCarrying", None)
    return places if before is None else f"{places}, carried {_identity(before, inner)}"


def _tracked(desc: Any, inner: Any, sought: bool) -> str:
    """Which things a description is of, and where `sought`: places of what is put are read anew when it is dropped."""
    things = ", ".join(sorted(_identity(thing, inner) for thing in desc.obj_set))
    return f"{things} sought at {sorted((int(x), int(y)) for x, y in desc.obj_poss)}" if sought else things


def _identity(thing: Any, inner: Any) -> str:
    """Which one of several equal things it is: the one that is carried, that lies somewhere, or that is gone."""
    if thing is inner.carrying:
        return "carried"
    grid = inner.grid
    cells = ((x, y) for y in range(grid.height) for x in range(grid.width) if grid.get(x, y) is thing)
    return next((f"{x}, {y}" for x, y in cells), "gone")
